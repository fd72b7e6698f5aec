// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What is seen before what: order of communications, of the bytes of one, of notices and data. See checks.h.
// What is never seen in some hundred tries may still be possible: "holds" means no more than that.
#include <algorithm>
#include <chrono>
#include <cstring>

#include <unistd.h>

#include "checks.h"

namespace tofu::check {
namespace {

constexpr std::size_t slots = 16;
constexpr std::size_t slot = 8192;
constexpr std::size_t ack = slots * slot; ///< a word of process 0
constexpr std::size_t room = ack + page;

/// What a check says: `good`, or "N of M" and `bad`, which is as heavy as `otherwise`.
struct Words {
    const char* good;
    Verdict otherwise;
    const char* bad;
    [[nodiscard]] Finding of(std::size_t wrong, std::size_t tried) const
    {
        return wrong == 0 ? holds("%zu %s", tried, good) : Finding{otherwise, text("%zu of %zu %s", wrong, tried, bad)};
    }
};

/// Process 0 posts to each slot, process 1 looks at each as soon as it can and says when it has seen all. A look that
/// returns true has seen what should not be.
template <class Post, class Look>
Finding in_batches(Side& side, const Words& words, Post&& post, Look&& look)
{
    constexpr std::uint64_t rounds = 40;
    Link link(side, room);
    std::size_t wrong = 0;
    for (std::uint64_t round = 1; round <= rounds; round++)
        if (link.rank() == 0) {
            for (std::size_t i = 0; i < slots; i++)
                post(link, i * slot, round * slots + i);
            link.await(ack, round, "the answer of the other process");
        } else {
            for (std::size_t i = 0; i < slots; i++)
                wrong += look(link, i * slot, round * slots + i) ? 1 : 0;
            link.put_word(round, ack, strong);
        }
    link.together();
    return link.rank() == 0 ? Finding{} : words.of(wrong, rounds * slots);
}

void fill(const Link& link, std::size_t at, std::size_t length, std::uint64_t value)
{
    for (std::size_t i = 0; i < length; i += 8)
        link.memory.word(at + i) = value;
}
/// Words that have not this value.
std::size_t others(const Link& link, std::size_t at, std::size_t length, std::uint64_t value)
{
    std::size_t n = 0;
    for (std::size_t i = 0; i < length; i += 8)
        n += link.memory.load(at + i, std::memory_order_relaxed) != value ? 1 : 0;
    return n;
}
std::size_t length_of(std::uint64_t value)
{
    constexpr std::size_t lengths[] = {16, 40, 256, 264, 1000, 2048, 4104, 7936};
    return lengths[value % std::size(lengths)];
}

Finding strong_behind(Side& side)
{
    return in_batches(
        side,
        {"Puts of 16 to 7936 bytes, each complete when the word after it was seen", Verdict::fails,
         "times a word was seen before the Put that was posted before it"},
        [](Link& link, std::size_t at, std::uint64_t value) {
            fill(link, at, length_of(value), value);
            link.put(at, at, length_of(value), 0);
            link.put_word(value, at + slot - 8, strong);
        },
        [](Link& link, std::size_t at, std::uint64_t value) {
            link.await(at + slot - 8, value, "a word after a Put");
            return others(link, at, length_of(value), value) != 0;
        });
}

Finding last_word(Side& side)
{
    return in_batches(
        side, {"Puts of 16 to 7936 bytes", Verdict::fails, "times the last word of a Put was seen before others"},
        [](Link& link, std::size_t at, std::uint64_t value) {
            fill(link, at, length_of(value), value);
            link.put(at, at, length_of(value), strong);
        },
        [](Link& link, std::size_t at, std::uint64_t value) {
            link.await(at + length_of(value) - 8, value, "the last word of a Put");
            return others(link, at, length_of(value), value) != 0;
        });
}

/// As the provider sends short packets: at the end of a line that is filled up, into the cache (guide 2.2.11).
Finding padded_line(Side& side)
{
    constexpr std::size_t packet = 2 * line - 32;
    return in_batches(
        side,
        {"Puts of 32 bytes with padding and cache injection, and no other line was changed", Verdict::fails,
         "Puts with padding were seen in part, or changed another line"},
        [](Link& link, std::size_t at, std::uint64_t value) {
            std::uint64_t words[] = {value, value, value, value};
            link.vcq.post([&] {
                return link.side.u.put_piggyback(
                    link.vcq.handle(), link.peer, words, link.peer_stadd + at + packet, sizeof words, 0,
                    strong | UTOFU_ONESIDED_FLAG_CACHE_INJECTION | UTOFU_ONESIDED_FLAG_PADDING, nullptr);
            });
        },
        [](Link& link, std::size_t at, std::uint64_t value) {
            link.await(at + 2 * line - 8, value, "the last word of a Put with padding");
            return others(link, at + packet, 32, value) != 0 || others(link, at, line, 0) != 0 ||
                   others(link, at + 2 * line, line, 0) != 0;
        });
}

Finding whole_lines(Side& side)
{
    return in_batches(
        side, {"lines of 256 bytes, each checked at any of its words", Verdict::weaker, "lines were seen in part"},
        [](Link& link, std::size_t at, std::uint64_t value) {
            fill(link, at, line, value);
            link.put(at, at, line, 0);
        },
        [](Link& link, std::size_t at, std::uint64_t value) {
            link.await(at + value % 32 * 8, value, "a word of a line");
            const bool torn = others(link, at, line, value) != 0;
            for (std::size_t i = 0; i < line; i += 8) // what is still on its way would come upon the next one
                link.await(at + i, value, "the rest of a line");
            return torn;
        });
}

/// Words that another side changes, all of them filled with one byte: how often a look saw another value than the look
/// before, and how often a mixture.
class WordWatch {
  public:
    static constexpr std::size_t words = 8;
    static constexpr std::uint64_t ones = 0x0101010101010101;
    /// A torn word is seen in a look that meets its change. Fewer changes than these say nothing.
    static constexpr std::uint64_t enough = 100;

    std::uint64_t look(const Link& link, std::size_t at, std::size_t word)
    {
        const std::uint64_t seen = link.memory.load(at + word * 8, std::memory_order_relaxed);
        torn_ += seen != (seen & 0xff) * ones ? 1 : 0;
        changes_ += seen != last_[word] ? 1 : 0;
        last_[word] = seen;
        looks_++;
        return seen;
    }
    void look_at_all(const Link& link, std::size_t at)
    {
        for (std::size_t word = 0; word < words; word++)
            (void)look(link, at, word);
    }
    [[nodiscard]] bool has_seen_enough() const noexcept { return changes_ >= enough; }
    [[nodiscard]] std::uint64_t changes() const noexcept { return changes_; }
    /// `by`: what changed the words; `before`: changes that the other process has seen.
    [[nodiscard]] Finding finding(const char* by, std::uint64_t before = 0) const
    {
        if (torn_ != 0)
            return fails("%lu of %lu aligned words of 8 bytes were seen in part", torn_, looks_);
        if (!has_seen_enough())
            return not_tried("only %lu changes of words by %s were seen in %lu polls, %lu are needed: run it with a "
                             "core for each process, or with a longer --patience",
                             changes_, by, looks_, enough);
        return holds("%lu changes by Puts, and %lu by %s were seen whole", before, changes_, by);
    }

  private:
    std::uint64_t last_[words] = {};
    std::uint64_t looks_ = 0;
    std::uint64_t changes_ = 0;
    std::uint64_t torn_ = 0;
};

/// Calls `step` until it says that all was seen, or for less time than the other process waits.
template <class Step>
void for_a_while(Step&& step)
{
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(answer_time());
    while (!step() && std::chrono::steady_clock::now() < end) {
    }
}

// Places in the page of whole_words: words that Puts change, those that the CPU changes, sources, and two notes.
constexpr std::size_t put_to = 0;
constexpr std::size_t stored_to = 512;
constexpr std::size_t put_from = 1024;
constexpr std::size_t got_to = 2048;
constexpr std::size_t puts_seen = 3072; ///< at process 0: process 1 has looked enough
constexpr std::size_t gets_done = 4096; ///< at process 1

/// By Puts of 64 bytes and of one word in turn, until process 1 has seen enough.
void change_by_puts(Link& link)
{
    std::uint64_t i = 0;
    for_a_while([&] {
        const std::uint64_t value = WordWatch::ones * (++i % 250);
        if (i % 2 == 0) {
            fill(link, put_from, 64, value);
            link.put(put_from, put_to, 64, strong | local_mrq, 1);
            link.vcq.must_mrq(); // the source may be filled again
        } else {
            link.put_word(value, put_to, strong);
        }
        return link.memory.load(puts_seen) != 0;
    });
    link.put_word(WordWatch::ones * 255, put_to, strong);
}

Finding whole_words(Side& side)
{
    Link link(side, page);
    WordWatch watch;
    if (side.rank() == 0) {
        change_by_puts(link);
        for_a_while([&] {
            link.get(got_to, stored_to, 64, local_mrq, 1);
            link.vcq.must_mrq();
            watch.look_at_all(link, got_to);
            return watch.has_seen_enough();
        });
        link.put_word(1, gets_done, strong);
        link.together();
        return watch.finding("the stores of the CPU that Gets read", link.memory.load(puts_seen));
    }
    bool said = false;
    for (Patience patience("the last of the words"); watch.look(link, put_to, 0) != WordWatch::ones * 255;
         patience.next()) {
        watch.look_at_all(link, put_to);
        if (watch.has_seen_enough() && !said) {
            said = true;
            link.put_word(watch.changes(), puts_seen, strong);
        }
    }
    std::uint64_t i = 0;
    for (Patience patience("the reader"); link.memory.load(gets_done) == 0; patience.next(), i++)
        for (std::size_t at = stored_to; at < stored_to + 64; at += 8)
            std::atomic_ref<std::uint64_t>(link.memory.word(at))
                .store(i % 256 * WordWatch::ones, std::memory_order_relaxed);
    link.together();
    const Finding finding = watch.finding("Puts");
    return finding.verdict == Verdict::holds ? Finding{} : finding; // process 0 says it
}

Finding plain_order(Side& side)
{
    return in_batches(
        side,
        {"pairs of Puts without the flag kept their order", Verdict::weaker,
         "times the second of two Puts without the flag was seen first"},
        [](Link& link, std::size_t at, std::uint64_t value) {
            link.put_word(value, at, 0);
            link.put_word(value, at + 1024, 0);
        },
        [](Link& link, std::size_t at, std::uint64_t value) {
            link.await(at + 1024, value, "the second of two Puts");
            const bool early = link.memory.load(at) != value;
            link.await(at, value, "the first of two Puts");
            return early;
        });
}

/// Looked at while they come, which a reader that sleeps misses, and behind them.
Finding write_after_write(Side& side)
{
    constexpr std::uint64_t words = 64; // one after the other; behind them, a word that comes last
    constexpr std::uint64_t each = 32;
    constexpr std::uint64_t n = words * each;
    Link link(side, page);
    std::size_t back = 0;
    if (side.rank() == 0) {
        for (std::uint64_t i = 0; i < n; i++)
            link.put_word(i + 1, i / each * 8, strong);
        link.put_word(n, words * 8, strong);
    } else {
        std::uint64_t before[words] = {};
        const auto look = [&](std::uint64_t w) {
            const std::uint64_t seen = link.memory.load(w * 8);
            back += seen < before[w] ? 1 : 0;
            before[w] = seen;
        };
        for (Patience patience("the last of the Puts"); link.memory.load(words * 8) != n; patience.next())
            for (std::uint64_t w = 0; w < words; w++)
                look(w);
        for (std::uint64_t w = 0; w < words; w++) {
            look(w);
            back += before[w] < (w + 1) * each ? 1 : 0; // the last one was behind the others
        }
    }
    link.together();
    if (side.rank() == 0)
        return {};
    return back == 0 ? holds("%lu Puts to %lu words, none after its successor", n, words)
                     : fails("%zu times an earlier Put was seen after a later one", back);
}

constexpr unsigned tries = 600;

/// Process 0 alone is active. `post` posts the i-th pair, of which a Get or an ARMW reports: what it has read is wrong
/// or not. A Get reads into the i-th word from `read_into` on; the notice of an ARMW brings the old value.
constexpr std::size_t read_into = 1024;
template <class Post, class Wrong>
Finding alone(Side& side, bool armw, const Words& words, Post&& post, Wrong&& is_wrong)
{
    Link link(side, page);
    std::size_t wrong = 0;
    if (link.rank() == 0)
        for (std::uint64_t i = 1, told = 1; i <= tries; i++) {
            post(link, i);
            for (; (i % 32 == 0 || i == tries) && told <= i; told++) {
                const std::uint64_t old = link.vcq.must_mrq().rmt_value;
                wrong += is_wrong(told, armw ? old : link.memory.load(read_into + 8 * told)) ? 1 : 0;
            }
        }
    link.together();
    return link.rank() != 0 ? Finding{} : words.of(wrong, tries);
}

void get_word(Link& link, std::uint64_t i)
{
    link.get(read_into + 8 * i, 0, 8, strong | local_mrq, 1);
}

Finding write_after_read(Side& side)
{
    return alone(
        side, false, {"Gets did not read the Put after them", Verdict::fails, "Gets read the data of a later Put"},
        [](Link& link, std::uint64_t i) {
            get_word(link, i);
            link.put_word(i, 0, strong);
        },
        [](std::uint64_t i, std::uint64_t read) { return read >= i; });
}

Finding read_after_write(Side& side)
{
    return alone(
        side, false,
        {"Gets in strong order read the data of the Put before them", Verdict::weaker,
         "Gets in strong order missed the data of an earlier Put"},
        [](Link& link, std::uint64_t i) {
            link.put_word(i, 0, strong);
            get_word(link, i);
        },
        [](std::uint64_t i, std::uint64_t read) { return read < i; });
}

Finding read_after_read(Side& side)
{
    Link link(side, page);
    if (side.rank() == 1) {
        std::uint64_t i = 0;
        for (Patience patience("the reader"); link.memory.load(8) == 0; patience.next())
            link.memory.store(0, ++i);
        link.together();
        return {};
    }
    for (std::uint64_t i = 0; i < tries; i++) {
        link.get(1024 + 8 * i, 0, 8, strong | local_mrq, 1);
        if (i % 32 == 31 || i + 1 == tries)
            for (std::uint64_t n = i % 32 + 1; n != 0; n--)
                link.vcq.must_mrq();
    }
    link.put_word(1, 8, strong);
    link.together();
    unsigned back = 0;
    for (std::uint64_t i = 1; i < tries; i++)
        back += link.memory.load(1024 + 8 * i) < link.memory.load(1024 + 8 * (i - 1)) ? 1 : 0;
    return back == 0 ? holds("%u Gets of a counter, the last one %lu", tries, link.memory.load(1024 + 8 * (tries - 1)))
                     : fails("%u of %u Gets read an older value than the one before", back, tries);
}

Finding armw_behind_armw(Side& side)
{
    return alone(
        side, true, {"ARMWs, each found the value of the one before", Verdict::fails, "ARMWs found a wrong value"},
        [](Link& link, std::uint64_t) { link.armw(UTOFU_ARMW_OP_ADD, 1, 0, strong | local_mrq, 1); },
        [](std::uint64_t i, std::uint64_t old) { return old != i - 1; });
}

Finding armw_behind_put(Side& side)
{
    return alone(
        side, true,
        {"ARMWs found the data of the Put before them", Verdict::weaker, "ARMWs missed the data of an earlier Put"},
        [](Link& link, std::uint64_t i) {
            link.put_word(i, 0, strong);
            link.armw(UTOFU_ARMW_OP_OR, 0, 0, strong | local_mrq, 1);
        },
        [](std::uint64_t i, std::uint64_t old) { return old != i; });
}

Finding fence(Side& side)
{
    constexpr std::size_t half = 4 * page;
    Link link(side, 2 * half + page);
    Finding finding;
    if (side.rank() == 0) {
        finding = holds("20 times 4 Puts of 64 KiB without a notice, read back after the notice of the fence");
        for (std::uint64_t round = 1; round <= 20; round++) {
            fill(link, 0, half, round);
            for (std::size_t at = 0; at < half; at += page)
                link.put(at, at, page, 0);
            link.armw(UTOFU_ARMW_OP_OR, 0, 2 * half, strong | local_mrq, 1);
            link.vcq.must_mrq();
            link.get(half, 0, half, local_mrq, 2);
            link.vcq.must_mrq();
            std::atomic_thread_fence(std::memory_order_acquire);
            if (const std::size_t n = others(link, half, half, round); n != 0)
                return fails("at the notice of the fence %zu of %zu words had not arrived", n, half / 8);
        }
    }
    link.together();
    return finding;
}

Finding notice_order(Side& side)
{
    return by_first(side, [&](Link& link) -> Finding {
        constexpr std::uint64_t n = 1000;
        std::uint64_t told = 0;
        for (std::uint64_t i = 0; i < n; i++) {
            const std::uint64_t edata = i % 250 + 1;
            if (i % 3 == 0)
                link.put(0, 8192, i % 2 == 0 ? 4096 : 8, local_mrq, edata);
            else if (i % 3 == 1)
                link.get(16384, 8192, i % 2 == 0 ? 4096 : 8, local_mrq, edata);
            else
                link.armw(UTOFU_ARMW_OP_ADD, 1, 32768, local_mrq, edata);
            while (i + 1 - told > (i + 1 == n ? 0 : 200)) {
                const utofu_mrq_notice notice = link.vcq.must_mrq();
                if (notice.edata != told % 250 + 1)
                    return fails("notice %lu is that of post EDATA %lu, not %lu", told, notice.edata, told % 250 + 1);
                told++;
            }
        }
        return holds("1000 notices of Puts, Gets and ARMWs mixed");
    });
}

/// Data looked at behind their notice, with a fence of our own in between or without.
template <bool fenced>
Finding notice_then_data(Side& side)
{
    constexpr std::size_t length = 2048;
    return in_batches(
        side,
        fenced ? Words{"notices of Puts, with the bytes visible after an acquire fence", Verdict::fails,
                       "notices were seen before their bytes"}
               : Words{"notices of Puts, with the bytes visible without a fence of the caller", Verdict::weaker,
                       "times utofu_poll_mrq() did not acquire the bytes of its notice"},
        [](Link& link, std::size_t at, std::uint64_t value) {
            fill(link, at, length, value);
            link.put(at, at, length, remote_mrq, at / slot + 1);
        },
        [](Link& link, std::size_t, std::uint64_t value) {
            const utofu_mrq_notice notice = link.vcq.must_mrq();
            if constexpr (fenced)
                std::atomic_thread_fence(std::memory_order_acquire);
            const std::size_t at = (notice.edata - 1) % slots * slot;
            return others(link, at, length, value / slots * slots + at / slot) != 0;
        });
}

Finding polls(Side& side)
{
    Link link(side, page);
    unsigned missed = 0;
    if (side.rank() == 0)
        for (unsigned round = 0; round < 8; round++) {
            for (unsigned i = 0; i < 16; i++)
                link.put_word(i, 8 * i, tcq | local_mrq, 1);
            usleep(10000);
            unsigned found = 0;
            Told told;
            for (Patience patience("16 notices"); found < 16; patience.next())
                if (link.vcq.read_mrq(told))
                    found++;
                else
                    missed++;
            for (unsigned i = 0; i < 16; i++)
                (void)link.vcq.next_tcq();
        }
    link.together();
    if (side.rank() != 0)
        return {};
    return missed == 0 ? holds("128 notices found by the first poll, 10 ms after their posts")
                       : weaker("%u polls found no notice 10 ms after the posts, but a later one did", missed);
}

Finding freed_under_way(Side& side)
{
    constexpr std::size_t n = 64;
    Link link(side, n * 4096 + page);
    unsigned arrived = 0;
    for (unsigned round = 1; round <= 4; round++) {
        fill(link, 0, n * 4096, round);
        if (side.rank() == 1)
            std::memset(link.memory.at(), 0, n * 4096);
        link.together();
        if (side.rank() == 0) {
            Vcq short_lived(side, side.tni());
            const utofu_stadd_t from = short_lived.reg(link.memory.at(), n * 4096);
            for (std::size_t i = 0; i < n; i++)
                short_lived.post([&] {
                    return side.u.put(short_lived.handle(), link.peer, from + i * 4096, link.peer_stadd + i * 4096,
                                      4096, 0, 0, nullptr);
                });
            must(short_lived.free(), "utofu_free_vcq with posts under way");
        }
        link.together();
        if (side.rank() == 1) {
            try {
                for (Patience patience("all", 0.3); others(link, 0, n * 4096, round) != 0; patience.next())
                    ;
            } catch (const Silence&) {
            }
            for (std::size_t i = 0; i < n; i++)
                arrived += others(link, i * 4096, 4096, round) == 0 ? 1 : 0;
        }
        link.together();
    }
    if (side.rank() == 0)
        return {};
    return arrived == 4 * n ? holds("256 Puts of 4 KiB arrived although their VCQ was freed after the posts")
                            : weaker("%u of 256 Puts arrived after their VCQ was freed", arrived);
}

constexpr Check list[] = {
    {"strong-order", "a post in strong order is written after all earlier posts", "ring, message, rma", 2,
     strong_behind},
    {"last-word", "the last 8 bytes of a Put in strong order are written last", "ring (guide 6.1.3.1)", 2, last_word},
    {"padded-line", "a Put with padding into the cache writes its bytes, the last 8 last, and nothing beyond its line",
     "ring (guide 2.2.11)", 2, padded_line},
    {"whole-words", "an aligned word of 8 bytes is seen whole", "ring, atomic, tx/event_credits", 2, whole_words},
    {"whole-lines", "a line of 256 bytes is seen whole", "none (docs/wire-protocol.md, \"Slots and packets\")", 2,
     whole_lines},
    {"plain-order", "Puts without the strong order flag keep their order",
     "none: each part that needs it sets the flag", 2, plain_order},
    {"write-after-write", "the last of several Puts to one word in strong order determines its value",
     "rma, ring (reports)", 2, write_after_write},
    {"write-after-read", "a Put in strong order writes after an earlier Get has read", "rma (FI_ORDER_RMA_WAR)", 2,
     write_after_read},
    {"read-after-read", "Gets in strong order read in sequence", "rma (FI_ORDER_RMA_RAR)", 2, read_after_read},
    {"read-after-write", "a Get in strong order reads the data of an earlier Put",
     "none: tx/remote_memory waits where an order was requested", 2, read_after_write},
    {"armw-after-armw", "ARMWs in strong order take effect in sequence", "atomic (FI_ORDER_ATOMIC_RAW)", 2,
     armw_behind_armw},
    {"armw-after-put", "an ARMW in strong order reads the data of an earlier Put", "none", 2, armw_behind_put},
    {"fence", "at the notice of an ARMW in strong order all earlier Puts have arrived", "utofu/vcq, tx/remote_memory",
     2, fence},
    {"notice-order", "local notices of one remote VCQ come in the order of posting", "atomic/armw_batch", 2,
     notice_order},
    {"notice-then-data", "a notice is seen after its bytes", "mem/mr (events), rma", 2, notice_then_data<true>},
    {"acquire", "utofu_poll_mrq() acquires the bytes of its notice", "none: utofu/vcq adds a fence", 2,
     notice_then_data<false>},
    {"polls", "a poll finds every notice that has arrived", "none: the poll is repeated", 2, polls},
    {"free-vcq", "posts arrive although their VCQ is freed", "none: utofu/vcq drains before it frees", 2,
     freed_under_way},
};

} // namespace

std::span<const Check> order_checks()
{
    return list;
}

} // namespace tofu::check
