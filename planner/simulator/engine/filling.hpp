// Progressive filling, as sharing.py's max_min_limits does it, for some flows.
#pragma once
#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "nics.hpp"

namespace planner {

class Filling {
 public:
  explicit Filling(double flow_bytes_per_s) : flow_bytes_per_s_(flow_bytes_per_s) {}

  // Finds what limits each of `flows`, which go in the order of workers, then channels. If a NIC has flows beside
  // `flows`, no other NIC of `flows` may fill before that one: then `flows` get its share, whatever the rest does.
  void run(const std::vector<MaxMinFlow*>& flows) {
    used_.clear();
    for (MaxMinFlow* flow : flows) {
      flow->waits = true;
      for (Nic* nic : {flow->worker_nic, flow->server_nic}) {
        if (!nic->filling) {
          nic->fill();
          used_.push_back(nic);
        }
        nic->waiting.push_back(flow);
      }
    }
    if (flow_bytes_per_s_ < infinity) {
      by_weight_ = flows;
      std::ranges::stable_sort(by_weight_, std::greater{}, &MaxMinFlow::weight);
    }
    heaviest_ = 0;
    for (size_t waiting = flows.size(); waiting > 0; waiting -= stopping_.size()) {
      double lowest = infinity;
      for (Nic* nic : used_) lowest = std::min(lowest, nic->share_now());
      stopping_.clear();
      if (flow_bytes_per_s_ < infinity && give_own_limit(lowest)) continue;
      stop(lowest * tie);
    }
    for (MaxMinFlow* flow : flows)
      for (Nic* nic : {flow->worker_nic, flow->server_nic}) {
        nic->filling = false;
        nic->waiting.clear();
      }
  }

 private:
  // Stops the flows of all NICs whose shares are at or below the level.
  void stop(double full) {
    int nics = 0;
    std::erase_if(used_, [&](Nic* nic) {
      if (nic->share_left > full) return nic->flows_left == 0;
      for (MaxMinFlow* flow : nic->waiting)
        if (std::exchange(flow->waits, false)) stopping_.push_back(flow);
      ++nics;
      return true;
    });
    if (nics > 1) std::ranges::sort(stopping_, {}, &MaxMinFlow::key);
    for (MaxMinFlow* flow : stopping_)
      give(*flow, flow->worker_nic->share_left <= full ? *flow->worker_nic : *flow->server_nic);
  }
  // The limit that each flow has for itself, if it lies at or below the level for the heaviest of those that wait.
  bool give_own_limit(double level) {
    while (!by_weight_[heaviest_]->waits) ++heaviest_;
    MaxMinFlow& flow = *by_weight_[heaviest_];
    double own_level = flow_bytes_per_s_ / flow.weight;
    if (own_level > level) return false;
    flow.waits = false;
    stopping_.push_back(&flow);
    give(flow, *flow.own, own_level, flow_bytes_per_s_);
    std::erase_if(used_, [](const Nic* nic) { return nic->flows_left == 0; });
    return true;
  }
  static void give(MaxMinFlow& flow, Nic& full) {
    give(flow, full.clock, full.share_left, full.share_left * flow.weight);
  }
  static void give(MaxMinFlow& flow, Clock& limit, double level, double rate) {
    flow.limit = &limit;
    flow.level = level;
    flow.worker_nic->take(rate, flow.weight);
    flow.server_nic->take(rate, flow.weight);
  }

  double flow_bytes_per_s_;
  std::vector<MaxMinFlow*> by_weight_;  // the heaviest first
  size_t heaviest_ = 0;                 // the first flow in by_weight_ that may still wait for a rate
  std::vector<MaxMinFlow*> stopping_;   // flows that get their rate in this round
  std::vector<Nic*> used_;              // NICs with flows that wait for a rate
};

}  // namespace planner
