"""NumPy's interface on a SYCL device, over these adapters.

    pip install dpnp
    ur-env python3 dpnp_sum.py

Prints the device's name, and
    sum of squares: 332833500
"""
import dpnp

x = dpnp.arange(1000, dtype="int64")
print(x.sycl_device.name)
print("sum of squares:", int((x * x).sum()))
