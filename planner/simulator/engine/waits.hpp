// What an op may have to wait for besides its dependencies: other workers, a core.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "inputs.hpp"
#include "lanes.hpp"

namespace planner {

// Joint ops: a group of workers does them together, on the lane of its lowest worker, the leader.
class Groups {
 public:
  explicit Groups(const Inputs& in) : in_(in), number_(in.ops, -1) {
    size_t joint = 0, scopes = in.leaders.size() / size_t(in.workers);
    for (int32_t op = 0; op < in.ops; ++op)
      if (in.scope[op] >= 0) number_[op] = static_cast<int32_t>(joint++);
    if (joint == 0) return;
    arrived_.resize(joint * in.workers, 0);
    members_.resize(scopes * in.workers);
    leads_.resize(scopes);
    for (size_t scope = 0; scope < scopes; ++scope)
      for (int w = 0; w < in.workers; ++w) {
        int leader = in.leaders[scope * in.workers + w];
        members_[scope * in.workers + leader].push_back(w);
        if (leader == w) leads_[scope].push_back(w);
      }
  }

  int leader(int32_t op, int worker) const { return in_.leaders[size_t(in_.scope[op]) * in_.workers + worker]; }
  // The members of a group, in ascending order.
  const std::vector<int>& members(int32_t op, int leader) const {
    return members_[size_t(in_.scope[op]) * in_.workers + leader];
  }
  const std::vector<int>& leaders(int32_t op) const { return leads_[in_.scope[op]]; }
  // A joint op is ready at one more member; true if it is ready at all members.
  bool all_arrived(int32_t op, int leader) {
    int& arrived = arrived_[size_t(number_[op]) * in_.workers + leader];
    if (++arrived < static_cast<int>(members(op, leader).size())) return false;
    arrived = 0;
    return true;
  }

 private:
  const Inputs& in_;
  std::vector<int32_t> number_;            // the number of an op among joint ops
  std::vector<int> arrived_;               // joint ops x leaders: members at which the op is ready
  std::vector<std::vector<int>> members_;  // scopes x leaders
  std::vector<std::vector<int>> leads_;    // the leaders of each scope
};

// Joins: a gated op waits for its peers, an op that awaits a tensor for the last version of that tensor.
class Barriers {
 public:
  explicit Barriers(const Inputs& in)
      : in_(in), arrived_(in.tied ? in.ops : 0, 0), published_(in.publishers.size(), 0), held_(in.publishers.size()) {}

  // A gated op is ready at one more worker, or group; true if it is ready at all `peers`.
  bool all_arrived(int32_t op, size_t peers) {
    if (++arrived_[op] < static_cast<int>(peers)) return false;
    arrived_[op] = 0;
    return true;
  }
  // Whether an op of a worker must wait in the given step; `publish` then returns the op.
  bool hold(int worker, int64_t step, int32_t op) {
    int32_t tensor = in_.awaits[op];
    if (tensor < 0 || published_[tensor] >= step * in_.publishers[tensor]) return false;
    held_[tensor].push_back({worker, op});
    return true;
  }
  // The end of an op; if no other op has still to publish the same tensor, the ops (worker, op) that await that tensor
  // may go, in order of workers.
  std::vector<std::pair<int, int32_t>> publish(int32_t op) {
    int32_t tensor = in_.publishes[op];
    if (tensor < 0 || ++published_[tensor] % in_.publishers[tensor] != 0) return {};
    auto free = std::exchange(held_[tensor], {});
    std::stable_sort(free.begin(), free.end(), [](auto& a, auto& b) { return a.first < b.first; });
    return free;
  }

 private:
  const Inputs& in_;
  std::vector<int> arrived_;                                // at how many workers a gated op is ready
  std::vector<int64_t> published_;                          // ops that publish a tensor and ended, ever
  std::vector<std::vector<std::pair<int, int32_t>>> held_;  // ops that wait, per tensor
};

// Lanes that find no core of their pool free stand in line.
class Cores {
 public:
  explicit Cores(const Inputs& in) : free_(in.pool_cores.begin(), in.pool_cores.end()), lines_(free_.size()) {}

  bool take(Lane& lane) {
    if (lane.waits_for_core) return false;
    if (free_[lane.pool] < 1) {
      lane.waits_for_core = true;
      lines_[lane.pool].push_back(&lane);
      return false;
    }
    --free_[lane.pool];
    return true;
  }
  // The lane that may start now, if there is one.
  Lane* release(int pool) {
    ++free_[pool];
    if (lines_[pool].empty()) return nullptr;
    Lane* first = lines_[pool].front();
    lines_[pool].pop_front();
    first->waits_for_core = false;
    return first;
  }

 private:
  std::vector<int64_t> free_;
  std::vector<std::deque<Lane*>> lines_;
};

}  // namespace planner
