// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Fuzz target: with any memory in utofu_post_toq, the decoder reads no more than desc_size and accepts only what it
// could have written.
#include "fuzz.h"

#include "tni/descriptor.h"

#include <memory>

namespace tofu::sim::fuzz {

void descriptor(Input input)
{
    // Of exactly the size, so that a sanitizer sees a byte too many.
    const size_t size = input.size();
    const std::unique_ptr<std::byte[]> memory(new std::byte[size + 1]);
    input.fill(memory.get(), size);
    size_t at = 0;
    while (at < size) {
        Descriptor d;
        const auto used = decode_descriptor(memory.get() + at, size - at, d);
        if (!used)
            break;
        require(*used == small_descriptor_bytes || *used == large_descriptor_bytes, "size of a descriptor");
        require(*used <= size - at, "a descriptor ends within its memory");
        require(d.length <= max_transfer, "length within the largest transfer");
        require(d.op != Op::put_piggyback || d.length <= max_piggyback, "length of a piggyback");
        std::byte again[large_descriptor_bytes];
        require(encode_descriptor(d, again) == *used, "written again it has the same size");
        Descriptor back;
        require(decode_descriptor(again, *used, back).has_value(), "written again it is sound");
        require(back.op == d.op && back.length == d.length && back.flags == d.flags && back.path == d.path &&
                    back.sps == d.sps && back.edata == d.edata && back.rmt_vcq_id == d.rmt_vcq_id &&
                    back.rmt_stadd == d.rmt_stadd && back.operand == d.operand && back.compare == d.compare &&
                    (d.op == Op::put_piggyback || back.lcl_stadd == d.lcl_stadd) && back.mtu == d.mtu &&
                    back.gap == d.gap,
                "written again it says the same");
        at += *used;
    }
}

} // namespace tofu::sim::fuzz
