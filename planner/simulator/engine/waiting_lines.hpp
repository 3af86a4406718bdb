// What an op may have to wait for besides its dependencies: the other workers (sync), a core of its server.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "inputs.hpp"
#include "lanes.hpp"

namespace planner {

// sync: an update waits for its peers, a download for the last update of its tensor.
class Barriers {
 public:
  explicit Barriers(const Inputs& in)
      : in_(in), arrived_(in.sync ? in.ops : 0, 0), published_(in.publishers.size(), 0), held_(in.publishers.size()) {}

  // A gated op is ready at one more worker; is it at all?
  bool all_arrived(int32_t op) {
    if (++arrived_[op] < in_.workers) return false;
    arrived_[op] = 0;
    return true;
  }
  // Must the download of a worker in its given step wait? Then `publish` gives it back.
  bool hold(int worker, int64_t step, int32_t op) {
    int32_t tensor = in_.awaits[op];
    if (tensor < 0 || published_[tensor] >= step * in_.publishers[tensor]) return false;
    held_[tensor].push_back({worker, op});
    return true;
  }
  // The end of an op; if it was the last of a tensor's update, downloads (worker, op) may go, in order of workers.
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
  std::vector<int64_t> published_;                          // updates of a tensor that ended, ever
  std::vector<std::vector<std::pair<int, int32_t>>> held_;  // downloads that wait, per tensor
};

// Lanes that find no core of their server free stand in line.
class Cores {
 public:
  explicit Cores(const Inputs& in) : free_(in.servers, in.server_cores), lines_(in.servers) {}

  bool take(Lane& lane) {
    if (lane.waits_for_core) return false;
    if (free_[lane.server] < 1) {
      lane.waits_for_core = true;
      lines_[lane.server].push_back(&lane);
      return false;
    }
    --free_[lane.server];
    return true;
  }
  // The lane that may start now, if there is one.
  Lane* release(int server) {
    ++free_[server];
    if (lines_[server].empty()) return nullptr;
    Lane* first = lines_[server].front();
    lines_[server].pop_front();
    first->waits_for_core = false;
    return first;
  }

 private:
  std::vector<int64_t> free_;
  std::vector<std::deque<Lane*>> lines_;
};

}  // namespace planner
