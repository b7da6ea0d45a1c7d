int able = 0;
urUsmP2PPeerAccessGetInfoExp(device, peer, UR_EXP_PEER_INFO_UR_PEER_ACCESS_SUPPORT, sizeof able, &able, NULL);
if (able)
  urUsmP2PEnablePeerAccessExp(device, peer);
