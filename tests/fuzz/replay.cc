// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Runs the fuzz targets without libFuzzer: the inputs of the corpus, then a bounded number of mutations of them.
//
// corpus/NAME.hex has an input a line. Mutations are the same in each run; TOFU_FUZZ_SEED gives others, and
// TOFU_FUZZ_ROUNDS so many times as many.
#include "fuzz.h"

#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

namespace tofu::sim::fuzz {

void PrintTo(const Target& target, std::ostream* stream) // found by GoogleTest
{
    *stream << target.name;
}

namespace {

using Bytes = std::vector<uint8_t>;
constexpr size_t longest = 4096;

std::vector<Bytes> corpus_of(const std::string& name)
{
    std::vector<Bytes> corpus;
    const char* const top = std::getenv("TOFU_TOP_SRCDIR");
    std::ifstream file(std::string(top != nullptr ? top : ".") + "/tests/fuzz/corpus/" + name + ".hex");
    for (std::string line; std::getline(file, line);) {
        Bytes bytes;
        for (size_t i = 0; i + 1 < line.size(); i += 2)
            bytes.push_back(static_cast<uint8_t>(std::stoul(line.substr(i, 2), nullptr, 16)));
        corpus.push_back(bytes);
    }
    return corpus;
}

uint64_t from_environment(const char* name, uint64_t otherwise)
{
    const char* const text = std::getenv(name);
    return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

// A few changes to an input: bytes, runs of equal bytes, pieces moved, cut or made longer.
Bytes mutate(Bytes bytes, std::mt19937_64& random)
{
    constexpr uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xff};
    for (uint64_t change = 0; change <= random() % 6; change++) {
        const size_t at = bytes.empty() ? 0 : random() % bytes.size();
        switch (random() % 6) {
        case 0:
        case 1:
            if (!bytes.empty())
                bytes[at] = static_cast<uint8_t>(random());
            break;
        case 2:
            for (size_t i = at; i < std::min(bytes.size(), at + 8); i++)
                bytes[i] = edges[random() % 5];
            break;
        case 3: bytes.resize(at); break;
        case 4:
            for (uint64_t i = 0; i <= random() % 64 && bytes.size() < longest; i++)
                bytes.push_back(static_cast<uint8_t>(random()));
            break;
        default:
            if (bytes.size() > 1)
                std::swap(bytes[at], bytes[random() % bytes.size()]);
            break;
        }
    }
    return bytes;
}

class FuzzReplay : public testing::TestWithParam<Target> {};

TEST_P(FuzzReplay, HasNoEffectOnOthers)
{
    const Target target = GetParam();
    std::vector<Bytes> corpus = corpus_of(target.name);
    ASSERT_FALSE(corpus.empty()) << "no corpus for " << target.name;
    for (const Bytes& bytes : corpus)
        target.run(Input(bytes.data(), bytes.size()));
    std::mt19937_64 random(from_environment("TOFU_FUZZ_SEED", 1));
    const uint64_t rounds = target.replays * from_environment("TOFU_FUZZ_ROUNDS", 1);
    for (uint64_t round = 0; round < rounds; round++) {
        const Bytes bytes = mutate(corpus[random() % corpus.size()], random);
        ::alarm(20); // an input that takes so long hangs
        target.run(Input(bytes.data(), bytes.size()));
    }
    ::alarm(0);
}

INSTANTIATE_TEST_SUITE_P(All, FuzzReplay, testing::ValuesIn(targets),
                         [](const auto& info) { return std::string(info.param.name); });

} // namespace
} // namespace tofu::sim::fuzz
