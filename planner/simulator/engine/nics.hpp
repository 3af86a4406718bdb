// What max-min sharing works on: flows that cross two NICs, the worker's (near) and the server's (far).
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "clocks.hpp"

namespace planner {

struct Nic;

struct MaxMinFlow : Flow {
  Nic *server_nic = nullptr, *worker_nic = nullptr;
  Clock* own = nullptr;  // for the limit that each flow has for itself, if there is one
  int server = 0, worker = 0;
  bool running = false, changed = false;  // changed: came or went in this event
  bool waits = false;                     // the flow has no rate yet, while rates are filled
  uint32_t place_at_server = 0, place_at_worker = 0;  // in Nic::listed
  Clock* limit = nullptr;      // the clock of the flow's limit, as last computed
  double level = 0, left = 0;  // rate for a unit of weight; bytes left of the chunk when the flow goes to another clock
};

// Shares that differ by rounding only are not told apart.
inline constexpr double tie = 1 + 1e-9;

// One direction of a node's NIC.
struct Nic {
  Clock clock;
  double capacity = 0, weight = 0;  // of all running flows; sums of weights are exact
  double share = infinity;          // the capacity for a unit of weight
  int flows = 0;                    // running flows

  void add(const MaxMinFlow& flow) {
    weight += flow.weight;
    ++flows;
  }
  void remove(const MaxMinFlow& flow) {
    weight -= flow.weight;
    --flows;
  }
  void weigh() { share = flows > 0 ? capacity / weight : infinity; }

  // While rates are filled: what is left for flows that have no rate yet.
  double left = 0, weight_left = 0, share_left = 0;
  int flows_left = 0;
  bool filling = false, taken = false;
  std::vector<MaxMinFlow*> waiting;
  void fill() {
    left = capacity;
    weight_left = weight;
    share_left = share;
    flows_left = flows;
    filling = true;
    taken = false;
  }
  void take(double rate, double weight_of_flow) {
    left -= rate;
    weight_left -= weight_of_flow;
    --flows_left;
    taken = true;
  }
  double share_now() {
    if (taken) share_left = std::max(0.0, left) / weight_left;
    taken = false;
    return share_left;
  }

  // Used by MixedShares only.
  std::vector<MaxMinFlow*> listed;  // flows that run
  bool seen = false;
  void list(MaxMinFlow& flow, uint32_t& place) {
    place = static_cast<uint32_t>(listed.size());
    listed.push_back(&flow);
  }

  // The NIC of a worker, used by max_min.hpp only.
  std::vector<int> workers;
  bool dirty = false;     // flows came or went in this event
  bool easy = true;       // what limits its flows was found without filling
  int64_t turn = -1;      // of the event loop, when the NIC was last looked at
};

// Some of the workers.
class WorkerSet {
 public:
  explicit WorkerSet(int workers) : words_((size_t(workers) + 63) / 64, 0) {}
  void add(int w) { words_[size_t(w) / 64] |= uint64_t{1} << (w % 64); }
  void clear() { std::ranges::fill(words_, 0); }
  void remove(int w) { words_[size_t(w) / 64] &= ~(uint64_t{1} << (w % 64)); }
  // Applies `action` to the members in order while it returns true; true if it did for all.
  template <class Do>
  bool all(Do action) const {
    for (size_t i = 0; i < words_.size(); ++i)
      for (uint64_t word = words_[i]; word != 0; word &= word - 1)
        if (!action(static_cast<int>(i * 64) + std::countr_zero(word))) return false;
    return true;
  }

 private:
  std::vector<uint64_t> words_;
};

}  // namespace planner
