urUSMHostAllocRegisterExp(context, host, 1 << 20, NULL); /* from now on it counts as host USM */
/* ... */
urUSMHostAllocUnregisterExp(context, host);
