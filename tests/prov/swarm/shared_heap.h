// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory of operator new that processes share with the children they fork later: what the model knows, and the buffers
// of a program. Nothing in it is used twice, so children may allocate at the same time. Called by processes.cc, and by
// whatever uses new; calls mmap and malloc.
#pragma once

namespace swarm {

/// From here on memory of operator new is shared, in this process and its later children.
void share_heap();

} // namespace swarm
