// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What fuzz targets share: drawing numbers from the fuzzer's bytes, and the list of targets.
//
// A target gets bytes, writes them where a hostile process could, and has the simulator read them. It ends the program
// when a property is violated; faults, endless loops and sanitizers' findings end it by themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tofu::sim::fuzz {

// Bytes of the fuzzer, from the front; zeros when they have run out.
class Input {
  public:
    Input(const uint8_t* data, size_t size) noexcept : data_(data), size_(size) {}

    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] size_t size() const noexcept { return size_; }
    size_t fill(void* to, size_t size) noexcept
    {
        const size_t got = size < size_ ? size : size_;
        std::memcpy(to, data_, got);
        std::memset(static_cast<std::byte*>(to) + got, 0, size - got);
        data_ += got;
        size_ -= got;
        return got;
    }
    template <typename T>
    [[nodiscard]] T take() noexcept
    {
        T value;
        fill(&value, sizeof value);
        return value;
    }
    [[nodiscard]] uint32_t below(uint32_t limit) noexcept { return take<uint16_t>() % limit; }
    // Small, near a limit, or anything: where mistakes are.
    [[nodiscard]] uint64_t number(uint64_t limit) noexcept
    {
        switch (take<uint8_t>() % 4) {
        case 0: return take<uint16_t>();
        case 1: return limit - take<uint8_t>() % 16;
        case 2: return limit + take<uint8_t>() % 16;
        default: return take<uint64_t>();
        }
    }

  private:
    const uint8_t* data_;
    size_t size_;
};

inline void require(bool holds, const char* what) noexcept
{
    if (!holds) {
        std::fprintf(stderr, "fuzz: violated: %s\n", what);
        std::abort();
    }
}

void barrier(Input input);    // records of barrier gates in the job file
void descriptor(Input input); // decoder of TOQ descriptors
void job(Input input);        // the job file and the counts of a segment, as tofu-sim show reads them
void mrq(Input input);        // message receive queues, as owner and as writer
void post(Input input);       // utofu_post_toq, session mode and polls in a job, over nonsense in the own segment
void trace(Input input);      // files of TOFU_SIM_TRACE, and what is made of them
void stag(Input input);       // STag tables, extents and backings of a peer

// Of the provider, which is another program (TOFU_FUZZ_PROVIDER): the two share no code.
void keys(Input input);   // a peer's directory of regions, as a lookup reads it
void packet(Input input); // a slot of a ring
void visit(Input input);  // a slot of an anonymous sender
void words(Input input);  // headers of areas, credit blocks

struct Target {
    const char* name;
    void (*run)(Input input);
    unsigned replays; // mutated inputs in `make check`
};
inline constexpr Target targets[] = {
#ifdef TOFU_FUZZ_PROVIDER
    {"keys", keys, 10'000},
    {"packet", packet, 4000},
    {"visit", visit, 4000},
    {"words", words, 10'000},
#else
    {"barrier", barrier, 4000}, {"descriptor", descriptor, 100'000},
    {"job", job, 300},          {"mrq", mrq, 20'000},
    {"post", post, 4000},       {"stag", stag, 3000},
    {"trace", trace, 1000},
#endif
};

} // namespace tofu::sim::fuzz
