// Which ops computation waits for.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "inputs.hpp"

namespace planner {

// A list of ops for each op.
struct Edges {
  std::vector<int32_t> start, index;
  std::span<const int32_t> of(int32_t op) const {
    return {index.data() + start[op], static_cast<size_t>(start[op + 1] - start[op])};
  }
  template <class Keep>
  static Edges select(const Inputs& in, Keep keep) {
    Edges edges;
    edges.start.push_back(0);
    for (int32_t op = 0; op < in.ops; ++op) {
      for (int32_t dependent : in.dependents(op))
        if (keep(op, dependent)) edges.index.push_back(dependent);
      edges.start.push_back(static_cast<int32_t>(edges.index.size()));
    }
    return edges;
  }
};

// Transfers and updates that computation waits for, and those among them that every visible end depends on.
struct Feeders {
  std::vector<uint8_t> feeds, required;  // per op
  int count = 0, required_count = 0;

  // Sets of feeders are bits; ops are visited after all they depend on. The end of `unseen` does not count.
  explicit Feeders(const Inputs& in, int32_t unseen = -1) : feeds(in.ops, 0), required(in.ops, 0) {
    std::vector<int32_t> number(in.ops, -1);
    for (int32_t op = 0; op < in.ops; ++op) {
      if (in.resource[op] == WORKER) continue;
      auto on_worker = [&in](int32_t dependent) { return in.resource[dependent] == WORKER; };
      if (std::ranges::any_of(in.dependents(op), on_worker)) feeds[op] = 1, number[op] = count++;
    }
    size_t words = (size_t(count) + 63) / 64;
    if (words * in.ops > (size_t(1) << 27)) return;  // a gigabyte of bits: not worth it
    std::vector<uint64_t> needs(words * in.ops, 0), common(words, ~uint64_t{0});
    std::vector<int32_t> waiting(in.waiting.begin(), in.waiting.end());
    std::vector<int32_t> ready(in.roots.begin(), in.roots.end());
    while (!ready.empty()) {
      int32_t op = ready.back();
      ready.pop_back();
      uint64_t* mine = needs.data() + words * op;
      if (number[op] >= 0) mine[number[op] / 64] |= uint64_t{1} << (number[op] % 64);
      bool visible = false;
      for (int32_t dependent : in.dependents(op)) {
        visible = visible || (in.resource[op] == WORKER && in.resource[dependent] != WORKER && op != unseen);
        uint64_t* theirs = needs.data() + words * dependent;
        for (size_t k = 0; k < words; ++k) theirs[k] |= mine[k];
        if (--waiting[dependent] == 0) ready.push_back(dependent);
      }
      for (size_t k = 0; k < words && visible; ++k) common[k] &= mine[k];
    }
    for (int32_t op = 0; op < in.ops; ++op)
      if (number[op] >= 0 && (common[number[op] / 64] >> (number[op] % 64) & 1)) required[op] = 1, ++required_count;
  }
};

}  // namespace planner
