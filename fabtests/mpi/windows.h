// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A window over memory of its own, freed with its owner.
#pragma once

#include "harness.h"

namespace mpitest {

template <typename T>
class Window {
  public:
    // Collective, as is the end of it.
    Window(const World& world, int count, T value) : data_(static_cast<size_t>(count), value)
    {
        MPITEST_CALL(MPI_Win_create(data_.data(), static_cast<MPI_Aint>(data_.size() * sizeof(T)), sizeof(T),
                                    MPI_INFO_NULL, world.comm, &handle_));
    }
    ~Window() { MPI_Win_free(&handle_); }
    Window(const Window&) = delete;
    Window& operator=(const Window&) = delete;

    [[nodiscard]] MPI_Win handle() const { return handle_; }
    // Others write it behind the compiler's back.
    [[nodiscard]] T operator[](int index) const
    {
        return *static_cast<const volatile T*>(&data_[static_cast<size_t>(index)]);
    }

  private:
    std::vector<T> data_;
    MPI_Win handle_ = MPI_WIN_NULL;
};

} // namespace mpitest
