"""A CUDA program on nothing but libcuda, run as a task by the tests of this folder.

    program.py MIB    fill MIB of memory with a pattern, then check it until it is ended
    program.py all    fill memory until there is no more, say how much it was, and end
    program.py busy   write into one block without a pause until it is ended
    program.py spread compute with more threads than fit, say on how many multiprocessors, and end

Says one JSON object a line.
"""

import ctypes
import json
import sys
import time

BLOCK_MB = 64
MEBIBYTE = 1024 * 1024
PATTERN = 0x5AFEC0DE
OUT_OF_MEMORY = 2
CHECK_EVERY_S = 0.2
# CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
MULTIPROCESSORS = 16
MOST_MULTIPROCESSORS = 1024
THREAD_BLOCKS, THREADS = 100_000, 1024
# Each thread marks the multiprocessor that it runs on.
MARK = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry mark(.param .u64 marks)
{
    .reg .b32 %r<3>;
    .reg .b64 %a<4>;
    ld.param.u64 %a1, [marks];
    cvta.to.global.u64 %a1, %a1;
    mov.u32 %r1, %smid;
    mul.wide.u32 %a2, %r1, 4;
    add.s64 %a3, %a1, %a2;
    mov.u32 %r2, 1;
    st.global.u32 [%a3], %r2;
    ret;
}
"""


class CudaError(Exception):
    """What a call answered instead of doing it."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: {code}")
        self.code = code


class Cuda:
    """One context on the first device that the program may see."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.blocks: list[ctypes.c_uint64] = []
        self.device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(self.device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: object) -> None:
        """Call the driver; anything but success is an error."""
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            raise CudaError(name, code)

    def memory_mb(self) -> tuple[int, int]:
        """Free and all memory, as the driver tells this process."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value // MEBIBYTE, total.value // MEBIBYTE

    def fill_block(self) -> None:
        """Take one more block and write the pattern into all of it."""
        block = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(block), ctypes.c_size_t(BLOCK_MB * MEBIBYTE))
        self.blocks.append(block)
        words = ctypes.c_size_t(BLOCK_MB * MEBIBYTE // 4)
        self.call("cuMemsetD32_v2", block, ctypes.c_uint(PATTERN), words)
        self.call("cuCtxSynchronize")

    def write_again(self) -> None:
        """Write the pattern into every block again, and wait until that is done."""
        words = ctypes.c_size_t(BLOCK_MB * MEBIBYTE // 4)
        for block in self.blocks:
            self.call("cuMemsetD32_v2", block, ctypes.c_uint(PATTERN), words)
        self.call("cuCtxSynchronize")

    def multiprocessors(self) -> tuple[int, int]:
        """How many the driver says that there are, and on how many threads have run."""
        reported = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(reported), MULTIPROCESSORS, self.device)
        module, function, marks = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
        self.call("cuModuleLoadData", ctypes.byref(module), MARK)
        self.call("cuModuleGetFunction", ctypes.byref(function), module, b"mark")
        size = ctypes.c_size_t(MOST_MULTIPROCESSORS * 4)
        self.call("cuMemAlloc_v2", ctypes.byref(marks), size)
        self.call("cuMemsetD32_v2", marks, ctypes.c_uint(0), ctypes.c_size_t(MOST_MULTIPROCESSORS))
        values = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(marks), ctypes.c_void_p))
        shape = (THREAD_BLOCKS, 1, 1, THREADS, 1, 1)
        self.call("cuLaunchKernel", function, *shape, 0, None, values, None)
        self.call("cuCtxSynchronize")
        found = (ctypes.c_uint32 * MOST_MULTIPROCESSORS)()
        self.call("cuMemcpyDtoH_v2", found, marks, size)
        return reported.value, sum(found)

    def spoilt_blocks(self) -> int:
        """How many blocks do not hold the pattern at their end any more."""
        last = BLOCK_MB * MEBIBYTE - 4
        word, spoilt = ctypes.c_uint(), 0
        for block in self.blocks:
            where = ctypes.c_uint64(block.value + last)
            self.call("cuMemcpyDtoH_v2", ctypes.byref(word), where, ctypes.c_size_t(4))
            spoilt += word.value != PATTERN
        return spoilt


def say(**facts: object) -> None:
    """One line for the test that reads the log."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def take_all(cuda: Cuda) -> None:
    """Take memory until the driver refuses, which it must do in these words."""
    try:
        while True:
            cuda.fill_block()
    except CudaError as error:
        say(taken_mb=len(cuda.blocks) * BLOCK_MB, is_out_of_memory=error.code == OUT_OF_MEMORY)


def hold(cuda: Cuda, size_mb: int) -> None:
    """Take so much and look after it; the test stops the task."""
    for _ in range(size_mb // BLOCK_MB):
        cuda.fill_block()
    checks = 0
    while True:
        checks += 1
        say(checks=checks, held_mb=len(cuda.blocks) * BLOCK_MB, spoilt=cuda.spoilt_blocks())
        time.sleep(CHECK_EVERY_S)


def compute(cuda: Cuda) -> None:
    """Keep the GPU at work; the test stops the task."""
    cuda.fill_block()
    say(busy=True)
    while True:
        cuda.write_again()


if __name__ == "__main__":
    program = Cuda()
    free_mb, total_mb = program.memory_mb()
    say(free_mb=free_mb, total_mb=total_mb)
    if sys.argv[1] == "all":
        take_all(program)
    elif sys.argv[1] == "spread":
        reported, used = program.multiprocessors()
        say(reported=reported, used=used)
    elif sys.argv[1] == "busy":
        compute(program)
    else:
        hold(program, int(sys.argv[1]))
