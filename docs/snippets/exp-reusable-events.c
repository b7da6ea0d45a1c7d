ur_exp_event_desc_t desc = {.stype = UR_STRUCTURE_TYPE_EXP_EVENT_DESC};
ur_event_handle_t reusable;
urEventCreateExp(context, device, &desc, &reusable);
urEventRelease(reusable);
