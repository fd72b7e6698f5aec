// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Every environment variable that provider and simulator read: all traffic over its whole range, on one side and on
// both; what is beyond it is refused with a line. A variable that the sources read and that has no row here fails.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "traffic.h"

namespace tofu::test {
namespace {

using sim::test::expect_processes;
using sim::test::run_processes;

enum class Side {
    any,      ///< one process may have it
    all,      ///< all processes of a job must have the same
    by_itself ///< of one process alone
};
enum class Refusal {
    none,    ///< every text is legal
    domain,  ///< by fi_domain
    getinfo, ///< by fi_getinfo
    join     ///< by the first call of uTofu
};

struct Knob {
    const char* name;
    Side side;
    std::vector<std::string> legal; ///< with the ends of the range; "" counts as not set
    Refusal refusal;
    std::vector<std::string> refused;
    std::string range; ///< what the line must say
};

void PrintTo(const Knob& knob, std::ostream* stream) // found by GoogleTest
{
    *stream << knob.name;
}

const std::string much = "99999999999999999999999";

const std::vector<Knob>& knobs()
{
    static const std::vector<Knob> all = {
        {"FI_TOFU_RINGS",
         Side::any,
         {"1", "2", "65536", ""},
         Refusal::domain,
         {"0", "65537", "4294967297", much, "-1", "x", "1x", " 1", "1.5"},
         "1 to 65536"},
        {"FI_TOFU_RING_SLOTS",
         Side::any,
         {"16", "32", "128", "256", "1024", "4096", ""},
         Refusal::domain,
         {"0", "1", "8", "15", "17", "8192", much, "-16", "x"},
         "power of two from 16 to 4096"},
        {"FI_TOFU_PPN", Side::any, {"1", "2", "6", "16", ""}, Refusal::domain, {"0", "17", much, "-1", "x"}, "1 to 16"},
        {"FI_TOFU_TNIS", Side::any, {"1", "3", "8", ""}, Refusal::domain, {"0", "9", much, "-1", "x"}, "1 to 8"},
        {"FI_TOFU_PROGRESS_CPUS",
         Side::any,
         {"0", "0-1023", "0,1,5-7", "0-", "0 2-3", ""},
         Refusal::domain,
         {"1024", "0-1024", "2-1", "0,", ",0", "0--", "-1", " 0", "0x1", "all", much},
         "0 to 1023"},
        {"FI_TOFU_NUMA",
         Side::any,
         {"auto", "on", "off", "yes", "no", "0", "1", ""},
         Refusal::domain,
         {"2", "node0", "ON", "-1"},
         "auto, on"},
        {"FI_TOFU_UNEXPECTED_BYTES",
         Side::any,
         {"0", "1", "65536", "281474976710656", ""},
         Refusal::domain,
         {"281474976710657", much, "-1", "1M", "x"},
         "0 to 281474976710656"},
        {"FI_TOFU_LINGER",
         Side::any,
         {"0", "1", "86400", ""},
         Refusal::domain,
         {"86401", much, "-1", "1s"},
         "0 to 86400"},
        {"FI_TOFU_STATS",
         Side::any,
         {"0", ""} /* 1: api/stats_test.cc */,
         Refusal::domain,
         {"2", "-1", "yes"},
         "0 to 1"},
        {"FI_TOFU_MR_CACHE",
         Side::any,
         {"auto", "on", "off", "yes", "no", "0", "1", ""},
         Refusal::domain,
         {"2", "of", "auto on", " ", "ON", "-1"},
         "auto, on"},
        {"FI_TOFU_GATES",
         Side::any,
         {"auto", "on", "off", "yes", "no", "0", "1", ""},
         Refusal::domain,
         {"2", "of", "on off", " ", "OFF", "-1"},
         "auto, on"},
        {"FI_TOFU_BACKEND", Side::any, {}, Refusal::getinfo, {"nonsense", "0", "/no/such/library"}, ""},
        {"TOFU_SIM_JOB",
         Side::all,
         {"a", "_", "@64", ""},
         Refusal::join,
         {"@65", ".a", "a/b", "a b", "\xc3\xa4"},
         "up to 64"},
        {"TOFU_SIM_SHAPE",
         Side::all,
         {"1x1x1", "255x1x1", "32x32x21", ""},
         Refusal::join,
         {"0x1x1", "256x1x1", "255x255x1", "1x1", "1x1x1x1", "-1x1x1", "x", "1x1x" + much},
         "1 to 255"},
        {"TOFU_SIM_TORUS", Side::all, {"x", "xyz", "zY", ""}, Refusal::join, {"a", "x1", "-"}, "x, y and z"},
        {"TOFU_SIM_PPN", Side::all, {"1", "2", "53", "54", ""}, Refusal::join, {"0", "55", much, "-1", "x"}, "1 to 54"},
        {"TOFU_SIM_RANK",
         Side::by_itself,
         {"1", "11", "12", "4294967294", ""},
         Refusal::join,
         {"4294967295", much, "-1", "x"},
         "0 to 4294967294"},
        {"TOFU_SIM_SIZE",
         Side::all,
         {"2", "12", "13", "648", ""},
         Refusal::join,
         {"0", "14155777", "4294967294", much, "-1", "x"},
         "1 to 14155776"},
        {"TOFU_SIM_CHAOS",
         Side::any,
         {"0:late", "18446744073709551615:late,drop,poll", "7:late,drop,poll,torn,padding", "0", "1", ""},
         Refusal::join,
         {"18446744073709551616", much, "-1", "x", "7:", "7:x", ":late"},
         "0 to 18446744073709551615"},
        {"TOFU_SIM_CLOCK", Side::all, {"tofud", ""}, Refusal::join, {"tofu", "1", "off", " tofud"}, "tofud"},
        {"TOFU_SIM_BIND", Side::all, {"one", "none", ""}, Refusal::join, {"all", "1", " one"}, "one"},
        {"TOFU_SIM_CHANNEL_BUFFER",
         Side::any,
         {"0", "4096", "1048576", ""},
         Refusal::join,
         {"1048577", much, "-1", "x"},
         "0 to 1048576"},
        {"TOFU_SIM_CPU",
         Side::all,
         {"0", "0.001", "3", "1000", ""},
         Refusal::join,
         {"1001", much, "-1", "x", "0.0001"},
         "0 to 1000"},
        {"TOFU_SIM_CQS",
         Side::all,
         {"shares", "refuse", "meet", ""},
         Refusal::join,
         {"share", "1", " meet"},
         "refuse or meet"},
        {"TOFU_SIM_TRACE",
         Side::any,
         {"@directory", "@directory/%j-%r.trace", ""},
         Refusal::join,
         {"/no/such/directory/x", "/proc/x"},
         "TOFU_SIM_TRACE"},
        {"TOFU_SIM_TRACE_MIB",
         Side::any,
         {"1", "64", "1048576", ""},
         Refusal::join,
         {"0", "1048577", much, "-1", "x"},
         "1 to 1048576"},
        {"UTOFU_NUM_MRQ_ENTRIES",
         Side::any,
         {"0", "2048", "2Ki", "2mi", "2097152", much, ""},
         Refusal::join,
         {"-1", "x", "2K", "2KiB"},
         "2048 (2Ki) to 2097152 (2Mi)"},
        {"UTOFU_NUM_MRQ_ENTRIES_SESSION",
         Side::any,
         {"0", "2048", "2Mi", much, ""},
         Refusal::join,
         {"-1", "x", "2K"},
         "2048 (2Ki) to 2097152 (2Mi)"},
        {"UTOFU_NUM_EXCLUSIVE_CQS", Side::any, {"0", "1", "9", much, ""}, Refusal::join, {"-1", "x"}, "0 or higher"},
        {"UTOFU_NUM_SESSION_MODE_CQS", Side::any, {"0", "1", "9", much, ""}, Refusal::join, {"-1", "x"}, "0 or higher"},
        {"UTOFU_SWAP_PROTECT", Side::any, {"0", "1", "2", "-1", ""}, Refusal::none, {}, ""},
    };
    return all;
}

/// A directory that goes with the process that made it.
const std::string& scratch()
{
    struct Directory {
        std::string path = std::filesystem::temp_directory_path() / "knobs.XXXXXX";
        const pid_t owner = getpid();
        Directory() { EXPECT_NE(mkdtemp(path.data()), nullptr); }
        ~Directory()
        {
            if (getpid() == owner)
                std::filesystem::remove_all(path);
        }
    };
    static const Directory directory;
    return directory.path;
}

/// "@64" is a name of 64 characters that begins with the job's own; "@directory" one that exists.
std::string text_of(const std::string& value)
{
    constexpr std::string_view directory = "@directory";
    if (value.compare(0, directory.size(), directory) == 0)
        return scratch() + value.substr(directory.size());
    if (value.empty() || value[0] != '@')
        return value;
    const char* const job = std::getenv("TOFU_TEST_JOB_PREFIX");
    std::string name = std::string(job != nullptr ? job : "knobs");
    name.resize(std::stoul(value.substr(1)), 'x');
    return name;
}

class Knobs : public testing::TestWithParam<Knob> {};

TEST_P(Knobs, CarryAllTrafficOverTheirRange)
{
    const Knob& knob = GetParam();
    (void)scratch(); // made here, not by the processes of the test
    for (const std::string& value : knob.legal)
        for (const bool both : {false, true}) {
            if ((knob.side == Side::all && !both) || (knob.side == Side::by_itself && both))
                continue;
            SCOPED_TRACE(std::string(knob.name) + "=" + value + (both ? " on both sides" : " on one side"));
            expect_processes(2, [&](const Rank& rank) {
                if (both || rank.number == 1)
                    setenv(knob.name, text_of(value).c_str(), 1);
                Session s(rank, traffic_options());
                Traffic(s).run();
            });
            if (HasFailure())
                return; // the others would tell the same
        }
}

/// What one process gets that sets the variable: the code, and what it wrote to stderr.
std::string tries(const Knob& knob, const std::string& value)
{
    const auto exits = run_processes(1, [&](const Rank&) {
        setenv(knob.name, text_of(value).c_str(), 1);
        if (knob.refusal == Refusal::join) {
            utofu_vcq_hdl_t vcq = 0;
            EXPECT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_ERR_INVALID_ARG);
            return;
        }
        fi_info* hints = fi_allocinfo();
        hints->fabric_attr->prov_name = strdup("tofu");
        fi_info* info = nullptr;
        const int found = fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info);
        fi_freeinfo(hints);
        if (knob.refusal == Refusal::getinfo) {
            EXPECT_EQ(found, -FI_ENODATA);
            return;
        }
        ASSERT_EQ(found, 0);
        fid_fabric* fabric = nullptr;
        ASSERT_EQ(fi_fabric(info->fabric_attr, &fabric, nullptr), 0);
        fid_domain* domain = nullptr;
        EXPECT_EQ(fi_domain(fabric, info, &domain, nullptr), -FI_EINVAL);
        EXPECT_EQ(domain, nullptr);
        EXPECT_EQ(fi_close(&fabric->fid), 0);
        fi_freeinfo(info);
    });
    EXPECT_TRUE(exits[0].success()) << exits[0].errors;
    return exits[0].errors;
}

TEST_P(Knobs, AreRefusedBeyondTheirRangeInOneLine)
{
    const Knob& knob = GetParam();
    EXPECT_EQ(knob.refused.empty(), knob.refusal == Refusal::none);
    for (const std::string& value : knob.refused) {
        SCOPED_TRACE(std::string(knob.name) + "=" + value);
        const std::string line = tries(knob, value);
        EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
        EXPECT_NE(line.find(knob.name), std::string::npos) << line;
        EXPECT_NE(line.find(knob.range), std::string::npos) << line;
    }
}

INSTANTIATE_TEST_SUITE_P(All, Knobs, testing::ValuesIn(knobs()),
                         [](const auto& info) { return std::string(info.param.name); });

/// One that changes after the domain was opened is refused when the endpoint is enabled.
TEST(Knob, IsLookedAtAgainWhenAnEndpointIsEnabled)
{
    const auto exits = run_processes(1, [](const Rank& rank) {
        Options options = traffic_options();
        options.enable = false;
        Session s(rank, options);
        setenv("FI_TOFU_UNEXPECTED_BYTES", "many", 1);
        EXPECT_EQ(fi_enable(s.ep), -FI_EINVAL);
        setenv("FI_TOFU_UNEXPECTED_BYTES", "", 1);
        EXPECT_EQ(fi_enable(s.ep), 0);
    });
    EXPECT_TRUE(exits[0].success()) << exits[0].errors;
    EXPECT_EQ(exits[0].errors, "libfabric:tofu: FI_TOFU_UNEXPECTED_BYTES=many: invalid: use a number from 0 to "
                               "281474976710656\n");
}

std::string read_file(const std::filesystem::path& path)
{
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

/// The sources name no other variable than those above, and the manual pages name each.
TEST(Knob, HasARowHereAndAParagraphInItsPage)
{
    const std::filesystem::path top = std::getenv("TOFU_TOP_SRCDIR") != nullptr ? std::getenv("TOFU_TOP_SRCDIR") : ".";
    std::set<std::string> here, read;
    for (const Knob& knob : knobs())
        here.insert(knob.name);
    const std::regex name("\"((FI_TOFU|TOFU_SIM|UTOFU)_[A-Z0-9_]+)\"");
    for (const char* part : {"prov", "tofu_sim"})
        for (const auto& entry : std::filesystem::recursive_directory_iterator(top / part)) {
            const auto kind = entry.path().extension();
            if (kind != ".cc" && kind != ".h" && kind != ".c")
                continue;
            const std::string text = read_file(entry.path());
            for (std::sregex_iterator at(text.begin(), text.end(), name), end; at != end; ++at)
                if (at->str(1).rfind("UTOFU_ERR_", 0) != 0)
                    read.insert(at->str(1));
        }
    EXPECT_EQ(here, read);
    // And the variables that libfabric knows, whatever the sources look like.
    int count = 0;
    fi_param* params = nullptr;
    ASSERT_EQ(fi_getparams(&params, &count), 0);
    std::set<std::string> told, ours;
    for (int i = 0; i < count; i++)
        if (std::strncmp(params[i].name, "FI_TOFU_", 8) == 0)
            told.insert(params[i].name);
    fi_freeparams(params);
    for (const std::string& knob : here)
        if (knob.rfind("FI_TOFU_", 0) == 0)
            ours.insert(knob);
    EXPECT_EQ(ours, told);
    for (const std::string& knob : here) {
        const char* const page = ours.count(knob) != 0 ? "man/fi_tofu.7" : "man/tofu_sim.7";
        EXPECT_NE(read_file(top / page).find(knob), std::string::npos) << knob << " is not in " << page;
    }
}

} // namespace
} // namespace tofu::test
