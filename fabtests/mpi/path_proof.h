// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What an MPI process can prove about the way its messages take, from the inside.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace mpidemo {

// Messages only took the wanted way if this all holds in the process.
struct LoadedParts {
    bool pml_cm = false;    // Open MPI's cm: messages go to a matching transport
    bool mtl_ofi = false;   // which is libfabric
    bool other_pml = false; // ob1 or ucx are still loaded: one of them may have been taken
    bool built_in = true;   // no pml is a file of its own (Open MPI 5): the three above say nothing
    bool provider = false;  // libtofu-fi.so
    std::string provider_path;
    std::string backend_path; // libtofucom.so
};
[[nodiscard]] LoadedParts find_loaded_parts();

// Value of one of Open MPI's control variables, empty if it has none of that name.
[[nodiscard]] std::string control_variable(std::string_view name);

// The uTofu library the provider has opened; handles nothing else and opens nothing itself.
class Backend {
  public:
    explicit Backend(const std::string& path);
    ~Backend();
    Backend(const Backend&) = delete;
    Backend& operator=(const Backend&) = delete;

    [[nodiscard]] bool is_open() const { return library_ != nullptr; }
    [[nodiscard]] bool has_statistics() const { return statistics_ != nullptr; }
    [[nodiscard]] bool coordinates(std::array<uint8_t, 6>& coords) const;

    struct Counts {
        uint64_t operations = 0;
        uint64_t bytes = 0;
    };
    // What this process has posted so far, on all TNIs.
    [[nodiscard]] Counts counts() const;

  private:
    // As in include/tofu_sim.h, which a program need not have.
    using StatisticsFunction = int (*)(uint16_t, Counts*);
    using CoordsFunction = int (*)(uint8_t*);

    void* library_ = nullptr;
    CoordsFunction coords_ = nullptr;
    StatisticsFunction statistics_ = nullptr;
};

} // namespace mpidemo
