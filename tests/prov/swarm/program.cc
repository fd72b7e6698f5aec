// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See program.h. A line is a word and fields like size=64; what is 0 can be left out. Lines with # are comments.
#include "program.h"

#include <charconv>
#include <iterator>
#include <sstream>

namespace swarm {
namespace {

constexpr const char* words[] = {
    "send",  "recv",  "multi",   "cancel", "peek",  "claim",  "discard", "read",   "spin",    "run",   "pass", "open",
    "close", "renew", "leave",   "start",  "kill",  "stop",   "go",      "map",    "unmap",   "write", "get",  "atomic",
    "join",  "part",  "collect", "forget", "raise", "recall", "insist",  "refuse", "context", "turn",  "await"};
static_assert(std::size(words) == static_cast<std::size_t>(Do::count_));

template <class T>
struct Field {
    const char* name;
    std::uint32_t T::*value;
};
constexpr Field<Command> command_fields[] = {
    {"at", &Command::at},         {"to", &Command::to},         {"back", &Command::back},
    {"tagged", &Command::tagged}, {"tag", &Command::tag},       {"any", &Command::any},
    {"from", &Command::from},     {"size", &Command::size},     {"level", &Command::level},
    {"fence", &Command::fence},   {"data", &Command::data},     {"count", &Command::count},
    {"region", &Command::region}, {"second", &Command::second}, {"offset", &Command::offset},
    {"beyond", &Command::beyond}, {"cell", &Command::cell},     {"fetch", &Command::fetch},
    {"tx", &Command::tx},         {"rx", &Command::rx},         {"later", &Command::later},
    {"entry", &Command::entry},   {"luck", &Command::luck}};
constexpr Field<Setup> setup_fields[] = {{"processes", &Setup::processes}, {"chaos", &Setup::chaos},
                                         {"busy", &Setup::busy},           {"blind", &Setup::blind},
                                         {"drop", &Setup::drop},           {"silent", &Setup::silent},
                                         {"sametag", &Setup::sametag},     {"reuse", &Setup::reuse},
                                         {"oldtags", &Setup::oldtags},     {"toq", &Setup::toq},
                                         {"rings", &Setup::rings},         {"ringslots", &Setup::ringslots},
                                         {"numbers", &Setup::numbers},     {"rma", &Setup::rma},
                                         {"events", &Setup::events},       {"order", &Setup::order},
                                         {"form", &Setup::form},           {"counters", &Setup::counters},
                                         {"triggers", &Setup::triggers},   {"groups", &Setup::groups},
                                         {"waits", &Setup::waits},         {"sharedav", &Setup::sharedav},
                                         {"initiator", &Setup::initiator}, {"apart", &Setup::apart},
                                         {"gates", &Setup::gates},         {"anygate", &Setup::anygate},
                                         {"layout", &Setup::layout}};

template <class T, std::size_t n>
std::string fields_of(const T& of, const Field<T> (&fields)[n])
{
    std::string text;
    const T usual{};
    for (const auto& [name, value] : fields)
        if (of.*value != usual.*value)
            text += std::string(" ") + name + "=" + std::to_string(of.*value);
    return text;
}

template <class T, std::size_t n>
bool read_field(const std::string& word, T& into, const Field<T> (&fields)[n])
{
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos)
        return false;
    for (const auto& [name, value] : fields)
        if (word.compare(0, equals, name) == 0) {
            const char* const end = word.data() + word.size();
            const auto [stop, error] = std::from_chars(word.data() + equals + 1, end, into.*value);
            return error == std::errc{} && stop == end;
        }
    return false;
}

} // namespace

std::string text_of(const Command& command)
{
    return words[static_cast<std::size_t>(command.what)] + fields_of(command, command_fields);
}

std::string text_of(const Program& program)
{
    std::string text = "net" + fields_of(program.setup, setup_fields) + "\n";
    for (const Command& command : program.commands)
        text += text_of(command) + "\n";
    return text;
}

bool read_program(const std::string& text, Program& program, std::string& wrong)
{
    program = {};
    std::istringstream lines(text);
    std::string line;
    for (unsigned number = 1; std::getline(lines, line); number++) {
        std::istringstream all(line);
        std::string word;
        if (!(all >> word) || word[0] == '#')
            continue;
        const bool net = word == "net";
        Command command;
        std::size_t which = 0;
        while (!net && which < std::size(words) && word != words[which])
            which++;
        bool good = net || which < std::size(words);
        if (good && !net)
            command.what = static_cast<Do>(which);
        while (good && all >> word)
            good = net ? read_field(word, program.setup, setup_fields) : read_field(word, command, command_fields);
        if (!good) {
            wrong = "line " + std::to_string(number) + ": " + word;
            return false;
        }
        if (!net)
            program.commands.push_back(command);
    }
    return true;
}

} // namespace swarm
