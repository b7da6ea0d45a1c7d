ur_queue_properties_t properties = {.stype = UR_STRUCTURE_TYPE_QUEUE_PROPERTIES,
                                    .flags = UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE};
ur_queue_handle_t in_order, out_of_order;
urQueueCreate(context, device, NULL, &in_order);
urQueueCreate(context, device, &properties, &out_of_order);
urQueueFinish(in_order);
urQueueRelease(in_order);
urQueueRelease(out_of_order);
