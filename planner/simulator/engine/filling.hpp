// Progressive filling, as sharing.py's max_min_limits does it, for some flows.
#pragma once
#include <algorithm>
#include <vector>

#include "nics.hpp"

namespace planner {

class Filling {
 public:
  explicit Filling(double flow_bytes_per_s) : flow_bytes_per_s_(flow_bytes_per_s) {}

  // Finds what limits each of the flows, which go in the order of workers, then servers. If a NIC has more flows
  // than these, no other NIC of these may fill before it: then they get its share, whatever the others do.
  void run(const std::vector<MaxMinFlow*>& flows) {
    waiting_ = flows;
    used_.clear();
    for (MaxMinFlow* flow : waiting_)
      for (Nic* nic : {flow->worker_nic, flow->server_nic})
        if (!nic->filling) {
          nic->fill();
          used_.push_back(nic);
        }
    while (!waiting_.empty()) {
      double lowest = infinity;
      for (Nic* nic : used_) lowest = std::min(lowest, nic->share_now());
      if (flow_bytes_per_s_ < infinity && give_own_limit(lowest)) continue;
      double full = lowest * tie;
      size_t kept = 0;
      for (MaxMinFlow* flow : waiting_)
        if (flow->worker_nic->share_left <= full)
          give(*flow, *flow->worker_nic);
        else if (flow->server_nic->share_left <= full)
          give(*flow, *flow->server_nic);
        else
          waiting_[kept++] = flow;
      waiting_.resize(kept);
      std::erase_if(used_, [full](const Nic* nic) { return nic->flows_left == 0 || nic->share_left <= full; });
    }
    for (MaxMinFlow* flow : flows) flow->worker_nic->filling = flow->server_nic->filling = false;
  }

 private:
  // Of equal weights the first in order is the heaviest.
  static bool lighter(const MaxMinFlow* a, const MaxMinFlow* b) {
    return a->weight < b->weight || (a->weight == b->weight && a->key > b->key);
  }
  // The limit that each flow has for itself, if it lies at or below the level for one of those that wait.
  bool give_own_limit(double level) {
    MaxMinFlow* heaviest = *std::ranges::max_element(waiting_, lighter);
    double own_level = flow_bytes_per_s_ / heaviest->weight;
    if (own_level > level) return false;
    std::erase(waiting_, heaviest);
    give(*heaviest, *heaviest->own, own_level, flow_bytes_per_s_);
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
  std::vector<MaxMinFlow*> waiting_;
  std::vector<Nic*> used_;
};

}  // namespace planner
