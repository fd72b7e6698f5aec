// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory of operator new: what the model knows, and the buffers of a program. Either processes share it with the
// children they fork later; nothing in it is used twice, so children may allocate at the same time. Or it is a
// program's own, and the next one finds it empty.
#pragma once

namespace swarm {

/// From here on memory of operator new is shared, in this process and its later children.
void share_heap();

/// From here on memory of operator new comes from an empty heap of this process, always at the same addresses; what was
/// in it is gone. Not with sanitizers of addresses or threads: there it stays with malloc.
void begin_own_heap();
/// From here on it does not. What is in that heap stays until the next begin_own_heap().
void leave_own_heap();

} // namespace swarm
