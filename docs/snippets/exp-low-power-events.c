ur_exp_enqueue_ext_properties_t properties = {.stype = UR_STRUCTURE_TYPE_EXP_ENQUEUE_EXT_PROPERTIES,
                                              .flags = UR_EXP_ENQUEUE_EXT_FLAG_LOW_POWER_EVENTS_SUPPORT};
urEnqueueEventsWaitWithBarrierExt(queue, &properties, 1, &event, NULL);
