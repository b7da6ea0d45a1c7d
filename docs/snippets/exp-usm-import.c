urUSMImportExp(context, host, 1 << 20); /* copies to and from it may be faster */
/* ... */
urUSMReleaseExp(context, host);
