"""The target `sim`: programs run on the cpu for values, and in simulated time on a device."""
