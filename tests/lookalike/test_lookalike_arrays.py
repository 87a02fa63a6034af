# SPDX-License-Identifier: Apache-2.0
"""Arrays, mipmapped arrays, texture and surface objects: their bytes count, and copies to and from them are real."""
import unittest

from lookalike_process import skip_if_unfit, succeed

ARRAYS = """
class Channel(ctypes.Structure):
    _fields_ = [(name, c_int) for name in ("x", "y", "z", "w", "kind")]
class Extent(ctypes.Structure):
    _fields_ = [(name, c_size_t) for name in ("width", "height", "depth")]
class Place(ctypes.Structure):
    _fields_ = [(name, c_size_t) for name in ("x", "y", "z")]
class Pitched(ctypes.Structure):
    _fields_ = [("address", c_void_p), ("pitch", c_size_t), ("width", c_size_t), ("height", c_size_t)]
class Copy(ctypes.Structure):
    _fields_ = [("from_array", c_void_p), ("from_place", Place), ("source", Pitched), ("to_array", c_void_p),
                ("to_place", Place), ("to", Pitched), ("extent", Extent), ("kind", c_int)]
class Deep(ctypes.Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("depth", c_size_t), ("format", c_int), ("channels", c_int),
                ("flags", c_int)]
class Resource(ctypes.Structure):
    _fields_ = [("type", c_int), ("of", c_void_p), ("rest", c_uint64 * 15), ("flags", c_int)]
FLOAT4, BYTE = Channel(32, 32, 32, 32, 2), Channel(8, 0, 0, 0, 1)

def new_array(channel, width, height=0, depth=None, flags=0):
    array = c_void_p()
    if depth is None:
        must(runtime.cudaMallocArray(byref(array), byref(channel), c_size_t(width), c_size_t(height), flags))
    else:
        must(runtime.cudaMalloc3DArray(byref(array), byref(channel), Extent(width, height, depth), flags))
    return array

def unused():
    free, total = c_size_t(), c_size_t()
    must(runtime.cudaMemGetInfo(byref(free), byref(total)))
    return free.value
"""


class Arrays(unittest.TestCase):
    def test_an_array_takes_its_bytes_and_gives_them_back(self):
        succeed(self, ARRAYS + """
before = unused()
array = new_array(FLOAT4, 1024, 1024)
assert before - unused() >= 16 * MIB
must(runtime.cudaFreeArray(array))
assert unused() == before
assert runtime.cudaFreeArray(array) == 400
must(runtime.cudaFreeArray(None))
assert runtime.cudaMallocArray(byref(array), byref(FLOAT4), c_size_t(0), c_size_t(4), 0) == 1
assert runtime.cudaMallocArray(byref(array), byref(FLOAT4), c_size_t(1 << 20), c_size_t(1 << 20), 0) == 2
assert runtime.cudaMallocArray(byref(array), byref(Channel(7, 0, 0, 0, 1)), c_size_t(4), c_size_t(4), 0) == 1
""", memory="1GiB")

    def test_an_array_tells_what_it_is(self):
        succeed(self, ARRAYS + """
channel, extent, flags = Channel(), Extent(), c_int()
for made in (FLOAT4, BYTE, Channel(16, 16, 0, 0, 0), Channel(16, 0, 0, 0, 2), Channel(32, 0, 0, 0, 1)):
    array = new_array(made, 10, 20, 6, flags=1)
    must(runtime.cudaArrayGetInfo(byref(channel), byref(extent), byref(flags), array))
    assert bytes(channel) == bytes(made) and flags.value == 1
    assert (extent.width, extent.height, extent.depth) == (10, 20, 6)
deep = Deep()
must(driver.cuArray3DGetDescriptor_v2(byref(deep), array))
assert (deep.width, deep.format, deep.channels) == (10, 3, 1)
""")

    def test_rows_go_to_an_array_and_come_back(self):
        succeed(self, ARRAYS + """
array, data = new_array(BYTE, 100, 50), bytes(i * 7 % 251 for i in range(5000))
must(runtime.cudaMemcpy2DToArray(array, c_size_t(0), c_size_t(0), data, c_size_t(100), c_size_t(100), c_size_t(50), 1))
back = ctypes.create_string_buffer(30 * 20)
must(runtime.cudaMemcpy2DFromArray(back, c_size_t(30), array, c_size_t(10), c_size_t(5), c_size_t(30), c_size_t(20), 2))
assert back.raw == b"".join(data[100 * (y + 5) + 10:][:30] for y in range(20))
other = new_array(BYTE, 100, 50)
must(runtime.cudaMemcpy2DArrayToArray(other, c_size_t(0), c_size_t(1), array, c_size_t(0), c_size_t(0), c_size_t(100),
                                      c_size_t(49), 3))
whole = ctypes.create_string_buffer(4900)
must(runtime.cudaMemcpyFromArray(whole, other, c_size_t(0), c_size_t(1), c_size_t(4900), 2))
assert whole.raw == data[:4900]
must(runtime.cudaMemcpyToArray(other, c_size_t(99), c_size_t(0), b"x" * 3, c_size_t(3), 1))
must(runtime.cudaMemcpyFromArray(whole, other, c_size_t(0), c_size_t(0), c_size_t(200), 2))
assert whole.raw[99:102] == b"xxx" and whole.raw[102:200] == data[2:100]
past = (other, c_size_t(0), c_size_t(49), data, c_size_t(100), c_size_t(100), c_size_t(2), 1)
assert runtime.cudaMemcpy2DToArray(*past) == 1
""", work="late")

    def test_boxes_count_in_elements_of_the_array(self):
        succeed(self, ARRAYS + """
array, data = new_array(FLOAT4, 8, 4, 3), bytes(i % 251 for i in range(8 * 4 * 3 * 16))
p = malloc(len(data))
upload(p, data)
must(runtime.cudaMemcpy3D(byref(Copy(source=Pitched(p, 128, 8, 4), to_array=array, extent=Extent(8, 4, 3), kind=3))))
back = ctypes.create_string_buffer(2 * 16 * 2)
must(runtime.cudaMemcpy3D(byref(Copy(from_array=array, from_place=Place(3, 1, 2),
                                     to=Pitched(ctypes.addressof(back), 32, 2, 2), extent=Extent(2, 2, 1), kind=2))))
assert back.raw == b"".join(data[((2 * 4 + y) * 8 + 3) * 16:][:32] for y in (1, 2))
""")

    def test_levels_halve(self):
        succeed(self, ARRAYS + """
before, mipmap, level, extent = unused(), c_void_p(), c_void_p(), Extent()
must(runtime.cudaMallocMipmappedArray(byref(mipmap), byref(FLOAT4), Extent(256, 64, 0), 20, 0))
assert before - unused() >= (256 * 64 + 128 * 32) * 16
shapes = []
for i in range(9):
    must(runtime.cudaGetMipmappedArrayLevel(byref(level), mipmap, i))
    must(runtime.cudaArrayGetInfo(None, byref(extent), None, level))
    shapes.append((extent.width, extent.height, extent.depth))
assert shapes[:3] == [(256, 64, 0), (128, 32, 0), (64, 16, 0)] and shapes[-1] == (1, 1, 0), shapes
assert runtime.cudaGetMipmappedArrayLevel(byref(level), mipmap, 9) == 1
must(runtime.cudaGetMipmappedArrayLevel(byref(level), mipmap, 1))
data = bytes(range(256)) * 8
must(runtime.cudaMemcpy2DToArray(level, c_size_t(0), c_size_t(0), data, c_size_t(2048), c_size_t(2048), c_size_t(1), 1))
back = ctypes.create_string_buffer(2048)
must(runtime.cudaMemcpyFromArray(back, level, c_size_t(0), c_size_t(0), c_size_t(2048), 2))
assert back.raw == data and runtime.cudaFreeArray(level) == 1
must(runtime.cudaFreeMipmappedArray(mipmap))
assert unused() == before
""")

    def test_textures_need_something_that_is_there(self):
        succeed(self, ARRAYS + """
array, object, texture, back = new_array(BYTE, 64, 64), c_uint64(), ctypes.create_string_buffer(72), Resource()
must(runtime.cudaCreateTextureObject(byref(object), byref(Resource(0, array.value)), texture, None))
must(runtime.cudaGetTextureObjectResourceDesc(byref(back), object))
assert back.of == array.value
assert runtime.cudaGetTextureObjectResourceViewDesc(ctypes.create_string_buffer(112), object) == 1
must(runtime.cudaDestroyTextureObject(object))
assert runtime.cudaDestroyTextureObject(object) == 1
must(runtime.cudaCreateTextureObject(byref(object), byref(Resource(2, malloc(4096))), texture, None))
must(runtime.cudaCreateSurfaceObject(byref(object), byref(Resource(0, array.value))))
assert runtime.cudaDestroyTextureObject(object) == 1
must(runtime.cudaDestroySurfaceObject(object))
must(runtime.cudaFreeArray(array))
assert runtime.cudaCreateTextureObject(byref(object), byref(Resource(0, array.value)), texture, None) == 1
assert runtime.cudaCreateSurfaceObject(byref(object), byref(Resource(2, malloc(4096)))) == 1
""")

    def test_the_drivers_forms(self):
        succeed(self, ARRAYS + """
array, data, p = c_void_p(), bytes(range(200)), malloc(4096)
must(driver.cuArrayCreate_v2(byref(array), byref(Deep(20, 10, 1 | 1 << 32))))
must(driver.cuMemcpyHtoA_v2(array, c_size_t(0), data, c_size_t(200)))
must(driver.cuMemcpyAtoD_v2(c_uint64(p), array, c_size_t(30), c_size_t(100)))
assert download(p, 100) == data[30:130]
must(driver.cuMemcpyDtoA_v2(array, c_size_t(150), c_uint64(p), c_size_t(50)))
assert driver.cuMemcpyDtoA_v2(array, c_size_t(160), c_uint64(p), c_size_t(50)) == 1
back = ctypes.create_string_buffer(200)
must(driver.cuMemcpyAtoH_v2_ptds(back, array, c_size_t(0), c_size_t(200)))
assert back.raw == data[:150] + data[30:80]
must(driver.cuArrayDestroy(array))
must(driver.cuMemsetD2D16_v2(c_uint64(p), c_size_t(64), 0x0102, c_size_t(20), c_size_t(3)))
rows = download(p, 192)
assert all(rows[y * 64:y * 64 + 40] == bytes([2, 1]) * 20 for y in range(3)) and rows[40:64] == data[70:94]
assert driver.cuMemsetD2D32_v2(c_uint64(p), c_size_t(62), 1, c_size_t(4), c_size_t(3)) == 1
to, sources, sizes = (c_uint64 * 2)(p, p + 512), (c_uint64 * 2)(p + 128, p + 64), (c_size_t * 2)(40, 30)
attributes, stream = ctypes.create_string_buffer(64), new_stream()
batch = (to, sources, sizes, c_size_t(2), attributes, (c_size_t * 1)(0), c_size_t(1))
must(driver.cuMemcpyBatchAsync_v2(*batch, stream))
assert driver.cuMemcpyBatchAsync_v2(*batch, None) == 1
must(runtime.cudaStreamSynchronize(stream))
assert download(p + 512, 30) == bytes([2, 1]) * 15
upload(p, bytes(600))
assert runtime.cudaMemcpyBatchAsync(*batch, None) == 1
for library, words in (runtime, ()), (ctypes.CDLL("libcudart.so.12"), (byref(c_size_t()),)):
    upload(p + 64, b"batch" * 6)
    must(library.cudaMemcpyBatchAsync(*batch, *words, stream))
    must(library.cudaMemcpyBatchAsync_ptsz(*batch, *words, None))
    must(runtime.cudaDeviceSynchronize())
    assert download(p + 512, 30) == b"batch" * 6
    upload(p + 512, bytes(30))
""")


if __name__ == "__main__":
    skip_if_unfit()
    unittest.main()
