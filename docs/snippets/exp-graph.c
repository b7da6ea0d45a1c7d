ur_exp_graph_handle_t graph;
ur_exp_executable_graph_handle_t executable;
urQueueBeginGraphCaptureExp(queue);
urEnqueueUSMFill(queue, memory, 1, "", 4096, 0, NULL, NULL);
urQueueEndGraphCaptureExp(queue, &graph);
urGraphInstantiateGraphExp(graph, &executable);
urEnqueueGraphExp(queue, executable, 0, NULL, NULL);
urGraphExecutableGraphDestroyExp(executable);
urGraphDestroyExp(graph);
