urDeviceWaitExp(device); /* everything enqueued on the device, on any queue */
