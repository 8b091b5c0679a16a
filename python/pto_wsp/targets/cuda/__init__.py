"""The target `cuda`: kernels as device functions of a thread block."""
