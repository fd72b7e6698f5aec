// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A run as GOAL. See exports.h.
//
// A put is a send at its origin and a recv at its target; a get or an atomic operation a question of 8 bytes, and an
// answer with the data. A wait for an arrival requires its recv; recvs themselves exist from the start,
// since no process has to be ready for an operation of uTofu. Times between calls are "calc", in ns.
#include "traces/exports.h"

#include <algorithm>
#include <map>

namespace tofu::sim::tools {
namespace {

using namespace trace;

constexpr uint32_t question_bytes = 8;

enum class Step : uint8_t { calc, post, wait };

struct Item {
    uint64_t time;
    Step step;
    uint32_t number; ///< in the list of its kind
    uint32_t thread;
};

bool asks(Op op) noexcept
{
    return op == Op::get || (op >= Op::armw4 && op <= Op::cswap8);
}

class GoalWriter {
  public:
    GoalWriter(const Run& run, std::FILE* to)
        : run_(run), to_(to), items_(run.processes.size()), tags_(run.transfers.size())
    {
    }

    void write()
    {
        collect();
        number_tags();
        std::fprintf(to_, "num_ranks %zu\n", run_.processes.size());
        for (uint32_t process = 0; process < run_.processes.size(); process++) {
            std::fprintf(to_, "\nrank %u {\n", process);
            write_process(process);
            std::fputs("}\n", to_);
        }
    }

  private:
    void collect()
    {
        for (uint32_t i = 0; i < run_.computations.size(); i++) {
            const Computation& span = run_.computations[i];
            items_[span.process].push_back({span.began, Step::calc, i, span.thread});
        }
        for (uint32_t i = 0; i < run_.transfers.size(); i++) {
            const Transfer& transfer = run_.transfers[i];
            if (travels(transfer))
                items_[transfer.from].push_back({transfer.posted, Step::post, i, transfer.thread});
        }
        for (uint32_t i = 0; i < run_.waits.size(); i++) {
            const Wait& wait = run_.waits[i];
            items_[wait.process].push_back({wait.ended, Step::wait, i, wait.thread});
        }
        for (auto& list : items_)
            std::stable_sort(list.begin(), list.end(), [](const Item& a, const Item& b) { return a.time < b.time; });
    }

    [[nodiscard]] static bool travels(const Transfer& transfer) noexcept
    {
        return transfer.to != no_index && transfer.arrived != 0 && transfer.to != transfer.from;
    }

    /// The n-th of a pair of ranks, so that each recv has its send.
    void number_tags()
    {
        std::map<std::pair<uint32_t, uint32_t>, uint32_t> next;
        for (uint32_t i = 0; i < run_.transfers.size(); i++) {
            const Transfer& transfer = run_.transfers[i];
            if (travels(transfer))
                tags_[i] = 2 * next[{transfer.from, transfer.to}]++;
        }
    }

    void write_process(uint32_t process)
    {
        std::map<uint32_t, uint32_t> last;     // of each thread: the label before
        std::map<uint32_t, uint32_t> received; // by transfer: the label of its recv here
        label_ = 0;
        for (const uint32_t number : run_.arrivals[process]) {
            const Transfer& transfer = run_.transfers[number];
            if (!travels(transfer))
                continue;
            const bool question = asks(transfer.op);
            received[number] = label("recv %ub from %u tag %u", question ? question_bytes : transfer.bytes,
                                     transfer.from, tags_[number]);
            if (question) {
                const uint32_t answer =
                    label("send %ub to %u tag %u", answer_bytes(transfer), transfer.from, tags_[number] + 1);
                require(answer, received[number]);
            }
        }
        for (const Item& item : items_[process]) {
            const auto before = last.find(item.thread);
            uint32_t now = 0;
            switch (item.step) {
            case Step::calc: {
                const Computation& span = run_.computations[item.number];
                now = label("calc %u", static_cast<uint32_t>(std::min<uint64_t>(span.ended - span.began, UINT32_MAX)),
                            0, 0);
                break;
            }
            case Step::post: {
                const Transfer& transfer = run_.transfers[item.number];
                now = label("send %ub to %u tag %u", asks(transfer.op) ? question_bytes : transfer.bytes, transfer.to,
                            tags_[item.number]);
                if (asks(transfer.op)) {
                    const uint32_t answer =
                        label("recv %ub from %u tag %u", answer_bytes(transfer), transfer.to, tags_[item.number] + 1);
                    require(answer, now);
                    answers_[item.thread].push_back(answer);
                }
                break;
            }
            case Step::wait: {
                const Wait& wait = run_.waits[item.number];
                const auto found = received.find(wait.transfer);
                auto& answers = answers_[item.thread];
                if (found == received.end() && (answers.empty() || wait.end != End::notice))
                    continue;
                now = label("calc %u", 0, 0, 0);
                if (found != received.end()) {
                    require(now, found->second);
                } else {
                    for (const uint32_t answer : answers)
                        require(now, answer);
                    answers.clear();
                }
                break;
            }
            }
            if (before != last.end())
                require(now, before->second);
            last[item.thread] = now;
        }
        answers_.clear();
    }

    [[nodiscard]] static uint32_t answer_bytes(const Transfer& transfer) noexcept
    {
        return transfer.op == Op::get ? transfer.bytes : question_bytes;
    }

    /// The format takes up to three numbers.
    [[gnu::format(printf, 2, 0)]] uint32_t label(const char* format, uint32_t a, uint32_t b, uint32_t c)
    {
        std::fprintf(to_, "l%u: ", ++label_);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        std::fprintf(to_, format, a, b, c);
#pragma GCC diagnostic pop
        std::fputc('\n', to_);
        return label_;
    }
    void require(uint32_t what, uint32_t before)
    {
        std::fprintf(to_, "l%u requires l%u\n", what, before);
    }

    const Run& run_;
    std::FILE* to_;
    std::vector<std::vector<Item>> items_;              ///< by process
    std::vector<uint32_t> tags_;                        ///< of a transfer; its answer has the next
    std::map<uint32_t, std::vector<uint32_t>> answers_; ///< by thread: labels of answers without a wait
    uint32_t label_ = 0;
};

} // namespace

void write_goal(const Run& run, std::FILE* to)
{
    GoalWriter(run, to).write();
}

} // namespace tofu::sim::tools
