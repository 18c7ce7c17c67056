"""The engines that experiments share: the graph engine, and one harness for emulated runs."""
