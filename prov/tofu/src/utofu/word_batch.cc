// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Batches of ARMWs on neighbouring words (Posts::post_batch; see vcq.h): in rows of descriptors that are posted by one
// call, or by a call for each word.
//
// The library prepares descriptors (guide 3.7.2), but a call for each word is what a row avoids. The descriptors of a
// batch differ in the operand, the compare value and the STADD alone, so each is written as a copy of the first. The
// guide does not say where the three stand. That is read off prepared descriptors, and checked for each batch: the
// library prepares the first and the last word, and the copy for the last word must be what the library has prepared.
// Else, and where the TOQ has no room for a whole row, each word is posted by a call of its own.
#include <algorithm>
#include <cstring>
#include <utility>

#include "utofu/vcq.h"

namespace tofu::vcq {

namespace {

/// With fewer words a row does not pay.
constexpr std::size_t least_row = 8;
/// Descriptors that are posted by one call, at most. A TOQ has room for many times as many.
constexpr std::size_t longest_row = 64;
/// The sizes of descriptors that rows are made of.
constexpr std::size_t small_descriptor = 32, large_descriptor = 64;

struct alignas(8) Image {
    std::byte bytes[large_descriptor];
};

template <class T>
T load(const std::byte* from) noexcept
{
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}
template <class T>
void store(std::byte* to, T value) noexcept
{
    std::memcpy(to, &value, sizeof value);
}

/// What distinguishes a word of a batch.
template <class Word>
struct Element {
    Word operand;
    Word compare;
    utofu_stadd_t remote;
};

/// Finds the field that has one value in `a` and another one in `b`, which are alike in all else. False: there is none.
template <class Field>
bool find_field(const Image& a, const Image& b, std::size_t size, Field in_a, Field in_b, std::uint8_t& offset) noexcept
{
    for (std::size_t at = 0; at + sizeof(Field) <= size; at++) {
        Image patched = a;
        store(patched.bytes + at, in_b);
        if (load<Field>(a.bytes + at) != in_a || std::memcmp(patched.bytes, b.bytes, size) != 0)
            continue;
        offset = static_cast<std::uint8_t>(at);
        return true;
    }
    return false;
}

/// A batch on its way.
template <class Word, bool swaps>
class WordPoster {
  public:
    WordPoster(const Functions& functions, utofu_vcq_hdl_t handle, const Words& words, std::uint8_t tag,
               unsigned long flags) noexcept
        : functions_(functions), handle_(handle), words_(words), tag_(tag), flags_(flags)
    {
    }
    /// Posts one word by a call of its own. The code of the call.
    [[nodiscard]] int post(std::size_t i) const noexcept
    {
        return call(functions_.*calls().first, element(i), PostTag::cbdata_of(tag_));
    }
    /// Posts words in rows, from the first on. Returns how many.
    [[nodiscard]] std::size_t post_rows(WordLayout& layout) noexcept
    {
        Image first, last;
        if (!prepare(element(0), first) || (layout.size == 0 && !learn(layout, first)) || size_ != layout.size ||
            !prepare(element(words_.n - 1), last) || size_ != layout.size || !is_copy(layout, first, last))
            return 0;
        return size_ == small_descriptor ? post_rows<small_descriptor>(first, layout)
                                         : post_rows<large_descriptor>(first, layout);
    }

  private:
    static constexpr auto calls() noexcept
    {
        using F = Functions;
        if constexpr (swaps && sizeof(Word) == 8)
            return std::pair(&F::cswap8, &F::prepare_cswap8);
        else if constexpr (swaps)
            return std::pair(&F::cswap4, &F::prepare_cswap4);
        else if constexpr (sizeof(Word) == 8)
            return std::pair(&F::armw8, &F::prepare_armw8);
        else
            return std::pair(&F::armw4, &F::prepare_armw4);
    }
    template <class Function, class... Rest>
    [[nodiscard]] int call(Function function, const Element<Word>& e, Rest... rest) const noexcept
    {
        if constexpr (swaps)
            return function(handle_, words_.peer, e.compare, e.operand, e.remote, tag_, flags_, rest...);
        else
            return function(handle_, words_.peer, words_.op, e.operand, e.remote, tag_, flags_, rest...);
    }
    [[nodiscard]] Element<Word> element(std::size_t i) const noexcept
    {
        return {load<Word>(words_.operands + i * sizeof(Word)),
                swaps ? load<Word>(words_.compares + i * sizeof(Word)) : Word{}, words_.remote + i * sizeof(Word)};
    }
    /// Lets the library prepare a descriptor, of `size_` bytes. False: it does not.
    [[nodiscard]] bool prepare(const Element<Word>& e, Image& to) noexcept
    {
        const auto function = functions_.*calls().second;
        size_ = 0;
        return function != nullptr && call(function, e, static_cast<void*>(to.bytes), &size_) == UTOFU_SUCCESS &&
               (size_ == small_descriptor || size_ == large_descriptor);
    }
    /// Finds the fields, each by a descriptor that differs from the first one in this field alone.
    [[nodiscard]] bool learn(WordLayout& layout, const Image& first) noexcept
    {
        layout.size = WordLayout::none;
        const Element<Word> e = element(0);
        Element<Word> changed[] = {e, e, e};
        changed[0].operand = ~e.operand;
        changed[1].compare = ~e.compare;
        changed[2].remote = element(words_.n - 1).remote;
        Image image[3];
        const std::size_t size = size_;
        for (unsigned i = 0; i < 3; i++)
            if (!prepare(changed[i], image[i]) || size_ != size)
                return false;
        WordLayout found{.size = static_cast<std::uint8_t>(size)};
        if (!find_field(first, image[0], size, e.operand, changed[0].operand, found.operand) ||
            (swaps && !find_field(first, image[1], size, e.compare, changed[1].compare, found.compare)) ||
            !find_field(first, image[2], size, e.remote, changed[2].remote, found.remote))
            return false;
        layout = found;
        return true;
    }
    template <std::size_t size>
    [[nodiscard]] std::size_t post_rows(const Image& first, const WordLayout& layout) const noexcept
    {
        alignas(Image) std::byte row[longest_row * size];
        for (std::size_t i = 0; i < std::min(words_.n, longest_row); i++)
            std::memcpy(row + i * size, first.bytes, size);
        std::size_t done = 0;
        while (done < words_.n) {
            const std::size_t n = std::min(words_.n - done, longest_row);
            write<size>(row, layout, done, n);
            if (functions_.post_toq(handle_, row, n * size, PostTag::cbdata_of(tag_)) != UTOFU_SUCCESS)
                break; // nothing of the row is posted
            done += n;
        }
        return done;
    }
    /// Is `last`, which the library has prepared for the last word, what write() makes of `first`?
    [[nodiscard]] bool is_copy(const WordLayout& layout, Image first, const Image& last) const noexcept
    {
        write<large_descriptor>(first.bytes, layout, words_.n - 1, 1);
        return std::memcmp(first.bytes, last.bytes, size_) == 0;
    }
    /// Writes the words from number `at` on into copies of the first descriptor, which are `size` bytes apart.
    template <std::size_t size>
    void write(std::byte* row, const WordLayout& layout, std::size_t at, std::size_t n) const noexcept
    {
        std::byte *operand = row + layout.operand, *compare = row + layout.compare, *remote = row + layout.remote;
        const std::byte* operands = words_.operands + at * sizeof(Word);
        const std::byte* compares = swaps ? words_.compares + at * sizeof(Word) : nullptr;
        utofu_stadd_t stadd = words_.remote + at * sizeof(Word);
        const auto put = [&](std::size_t i) {
            store(operand + i * size, load<Word>(operands + i * sizeof(Word)));
            if constexpr (swaps)
                store(compare + i * size, load<Word>(compares + i * sizeof(Word)));
            store<utofu_stadd_t>(remote + i * size, stadd + i * sizeof(Word));
        };
        constexpr std::size_t together = 4;
        for (; n >= together; n -= together) {
            put(0), put(1), put(2), put(3);
            operand += together * size, compare += together * size, remote += together * size;
            operands += together * sizeof(Word), compares += swaps ? together * sizeof(Word) : 0;
            stadd += together * sizeof(Word);
        }
        for (std::size_t i = 0; i < n; i++)
            put(i);
    }

    const Functions& functions_;
    const utofu_vcq_hdl_t handle_;
    const Words words_;
    const std::uint64_t tag_;
    const unsigned long flags_;
    std::size_t size_ = 0; ///< of the descriptor prepared last
};

} // namespace

template <class Word, bool swaps>
std::size_t Posts::post_batch(std::uint8_t batch, const Words& words, unsigned long flags, Post& posted) noexcept
{
    WordPoster<Word, swaps> poster(*functions_, handle_, words, batch, flags);
    const bool pays = words.n >= least_row && backend().caps().max_toq_desc_size <= sizeof(Image);
    std::size_t done = pays ? poster.post_rows(layouts_[swaps][sizeof(Word) == 8]) : 0;
    int code = UTOFU_SUCCESS;
    while (done < words.n && (code = poster.post(done)) == UTOFU_SUCCESS)
        done++;
    posted = done == words.n ? Post::done : refuse(code, CompletionLevel::never, 0);
    return done;
}

template std::size_t Posts::post_batch<std::uint32_t, false>(std::uint8_t, const Words&, unsigned long, Post&) noexcept;
template std::size_t Posts::post_batch<std::uint32_t, true>(std::uint8_t, const Words&, unsigned long, Post&) noexcept;
template std::size_t Posts::post_batch<std::uint64_t, false>(std::uint8_t, const Words&, unsigned long, Post&) noexcept;
template std::size_t Posts::post_batch<std::uint64_t, true>(std::uint8_t, const Words&, unsigned long, Post&) noexcept;

} // namespace tofu::vcq
