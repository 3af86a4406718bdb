// Max-min fair rates over NICs, for the flows of one direction (or of both, if some node holds a worker and a
// server); the operations and their order are those of sharing.py's progressive filling.
//
// Flows lie in rows, one for each server's NIC, in the order of workers. Where many workers meet at few servers
// the servers' NICs fill first, each at the level capacity / flows, whatever the others do: such a row is
// "plain", and a change touches the clock of that row alone. Filling is worked out only for rows that may be
// limited by a worker's NIC too.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "nics.hpp"

namespace planner {

class MaxMinShares {
 public:
  // `first`, `last`: the directions, 0 down and 1 up, whose flows it serves.
  MaxMinShares(const Inputs& in, const Now& now, int first, int last, bool remembers)
      : in_(in),
        now_(now),
        first_(first),
        rows_(size_t(last - first + 1) * in.servers),
        flows_(rows_.size() * in.workers),
        own_(in.flow_bytes_per_s < infinity ? flows_.size() : 0),
        even_(in.fairness_sigma == 0) {
    std::vector<int> nic_of(in.nic_capacity.size(), -1);
    auto nic = [&](int link) {
      if (nic_of[link] < 0) {
        nic_of[link] = static_cast<int>(nics_.size());
        nics_.emplace_back().link = link;
        nics_.back().capacity = in.nic_capacity[link];
      }
      return nic_of[link];
    };
    for (size_t r = 0; r < rows_.size(); ++r) {
      int link = 2 * in.server_nodes[r % in.servers] + first + static_cast<int>(r) / in.servers;
      by_rows_ = by_rows_ && nic_of[link] < 0;
      rows_[r].nic = nic(link);
      rows_[r].flows.reserve(in.workers);
    }
    for (size_t r = 0; r < rows_.size(); ++r) {
      int direction = first + static_cast<int>(r) / in.servers, server = static_cast<int>(r) % in.servers;
      for (int w = 0; w < in.workers; ++w) {
        MaxMinFlow& flow = flows_[r * in.workers + w];
        flow.key = event_key(direction == 0 ? DOWNLINK : UPLINK, w, server);
        flow.row = static_cast<int>(r);
        flow.nic = nic(2 * in.worker_nodes[w] + 1 - direction);
        if (server == 0) nics_[flow.nic].workers.push_back(w);
      }
    }
    by_rows_ = by_rows_ && first == last;
    for (Nic& nic : nics_)
      if (!nic.workers.empty())
        least_worker_share_ = std::min(least_worker_share_, nic.capacity / (nic.workers.size() * in.servers));
    for_all_clocks([remembers](Clock& clock) { clock.remembers = remembers; });
  }

  Flow& flow(int direction, int worker, int server) {
    return flows_[size_t((direction - first_) * in_.servers + server) * in_.workers + worker];
  }
  void start(Flow& started, double size, double weight) {
    auto& flow = static_cast<MaxMinFlow&>(started);
    if (&flow == ended_ && flow.weight == weight) {
      ended_ = nullptr;
      flow.add(size);
      return extend(flow);
    }
    leave();
    flow.weight = weight;
    flow.size = flow.left = size;
    if (weight > heaviest_) heaviest_ = weight, heavier_ = true;
    Row& row = rows_[flow.row];
    row.flows.insert(std::lower_bound(row.flows.begin(), row.flows.end(), &flow), &flow);
    new_flows_.push_back(&flow);
    comes_or_goes(flow);
  }
  void finish(Flow& flow) { ended_ = static_cast<MaxMinFlow*>(&flow); }
  // What is known to follow has changed.
  void extend(Flow& flow) {
    flow.clock->moved(flow);
    look_at(*flow.clock);
  }
  void commit() {
    leave();
    if (changed_) {
      if (by_rows_)
        share_rows();
      else
        share_all();
      settle();
      changed_ = false;
    }
    if (!looked_at_.empty()) find_next();
  }
  Event next() const { return next_; }
  template <class Do>
  void for_all_clocks(Do action) {
    for (Nic& nic : nics_) action(nic.clock);
    for (Clock& clock : own_) action(clock);
  }
  std::function<void(Flow&)> before_move;

 private:
  // A row is plain only if no worker's NIC comes near its level: rounding must not decide.
  static constexpr double clearly = 1 + 1e-9;

  void leave() {
    if (ended_ == nullptr) return;
    MaxMinFlow& flow = *ended_;
    ended_ = nullptr;
    Clock& clock = *flow.clock;
    clock.set(now_, flow.target);
    clock.remove(flow);
    look_at(clock);
    Row& row = rows_[flow.row];
    row.flows.erase(std::lower_bound(row.flows.begin(), row.flows.end(), &flow));
    comes_or_goes(flow);
  }
  void comes_or_goes(const MaxMinFlow& flow) {
    rows_[flow.row].dirty = nics_[rows_[flow.row].nic].stale = nics_[flow.nic].stale = changed_ = true;
  }
  // Sums in the order of workers, then servers: weights round.
  void weigh_row(Row& row) {
    Nic& nic = nics_[row.nic];
    double sum = even_ ? static_cast<double>(row.flows.size()) : 0;
    if (!even_)
      for (const MaxMinFlow* flow : row.flows) sum += flow->weight;
    nic.weigh(static_cast<int>(row.flows.size()), sum);
  }
  Nic& worker_nic(const MaxMinFlow& flow) {
    Nic& nic = nics_[flow.nic];
    if (nic.stale) {
      double sum = 0;
      int n = 0;
      for (int w : nic.workers)
        for (int s = 0; s < in_.servers; ++s)
          if (const MaxMinFlow& other = at(s, w); running(other)) sum += other.weight, ++n;
      nic.weigh(n, sum);
    }
    return nic;
  }
  MaxMinFlow& at(int row, int worker) { return flows_[size_t(row) * in_.workers + worker]; }
  // It has a clock, or has just started.
  static bool running(const MaxMinFlow& flow) { return flow.clock != nullptr || flow.left > 0; }

  // A row whose level lies below every flow's own limit and below the shares of all its workers' NICs is plain:
  // those only grow while others fill. The rest is filled.
  void share_rows() {
    double limit = in_.flow_bytes_per_s / (heaviest_ * clearly);
    double least = std::min(in_.flow_bytes_per_s, least_worker_share_) / (heaviest_ * clearly);
    size_t rest = 0;
    for (Row& row : rows_) {
      row.was_plain = row.plain;
      if (row.dirty) weigh_row(row);
      row.plain = true;
      if (row.flows.empty()) continue;
      double level = nics_[row.nic].share;
      if (row.dirty || heavier_) row.safe = level * clearly < least;
      if (!row.safe) {
        row.plain = level < limit;
        for (MaxMinFlow* flow : row.flows) row.plain = row.plain && level * clearly < worker_nic(*flow).share;
      }
      if (!row.plain) rest += row.flows.size();
    }
    heavier_ = false;
    if (rest > 0) fill_rest(rest, limit);
  }

  // Progressive filling for rows that are not plain: of them, their workers' NICs, and of plain rows what they
  // take from those.
  void fill_rest(size_t rest, double limit) {
    used_.clear();
    for (Row& row : rows_) {
      if (row.flows.empty()) continue;
      Nic& nic = nics_[row.nic];
      nic.fill();
      used_.push_back({&nic, &row});
      if (row.plain) continue;
      for (MaxMinFlow* flow : row.flows) {
        flow->waiting = true;
        Nic& theirs = worker_nic(*flow);
        if (theirs.filling) continue;
        theirs.filling = true;
        theirs.fill();
        used_.push_back({&theirs, nullptr});
        filling_.push_back(&theirs);
      }
    }
    while (rest > 0) {
      auto [level, full] = next_full();
      if (size_t limited = level < limit ? 0 : give_limits(level)) {
        rest -= limited;
        continue;
      }
      if (full.row != nullptr && full.row->plain) {
        int r = static_cast<int>(full.row - rows_.data());
        for (Nic* nic : filling_)
          for (int w : nic->workers)
            if (const MaxMinFlow& flow = at(r, w); running(flow)) nic->take(level * flow.weight, flow.weight);
        full.nic->flows_left = 0;
      } else if (full.row != nullptr) {
        for (MaxMinFlow* flow : full.row->flows)
          if (flow->waiting) give(*flow, level, *full.nic, nics_[flow->nic]), --rest;
      } else {
        for (int w : full.nic->workers)
          for (int s = 0; s < in_.servers; ++s)
            if (MaxMinFlow& flow = at(s, w); flow.waiting) give(flow, level, *full.nic, nics_[rows_[s].nic]), --rest;
      }
    }
    for (Nic* nic : filling_) nic->filling = false;
    filling_.clear();
  }
  // Flows whose own limit lies at or below the level get it; how many?
  size_t give_limits(double level) {
    waiting_.clear();
    for (Row& row : rows_)
      for (MaxMinFlow* flow : row.flows)
        if (flow->waiting && in_.flow_bytes_per_s / flow->weight <= level) waiting_.push_back(flow);
    std::sort(waiting_.begin(), waiting_.end(), [](auto* a, auto* b) { return a->key < b->key; });
    for (MaxMinFlow* flow : waiting_) {
      flow->waiting = false;
      give_limit(*flow);
    }
    return waiting_.size();
  }
  void give_limit(MaxMinFlow& flow) {
    flow.limit = &own_[static_cast<size_t>(&flow - flows_.data())];
    flow.level = in_.flow_bytes_per_s / flow.weight;
    nics_[rows_[flow.row].nic].take(in_.flow_bytes_per_s, flow.weight);
    nics_[flow.nic].take(in_.flow_bytes_per_s, flow.weight);
  }
  struct Used {  // a NIC with flows that wait for their rates
    Nic* nic;
    Row* row;  // if it is a server's
  };
  // The NIC with the least left for a unit of weight, the lowest of them if they tie.
  std::pair<double, Used> next_full() {
    double level = infinity;
    Used full{};
    size_t kept = 0;
    for (Used used : used_) {
      if (used.nic->flows_left == 0) continue;
      used_[kept++] = used;
      double share = used.nic->share_now();
      if (share < level || (share == level && full.nic != nullptr && used.nic->link < full.nic->link))
        level = share, full = used;
    }
    if (full.nic == nullptr) throw std::logic_error("the weights of flows are too far apart to share a NIC");
    used_.resize(kept);
    return {level, full};
  }
  static void give(MaxMinFlow& flow, double level, Nic& full, Nic& other) {
    flow.waiting = false;
    flow.limit = &full.clock;
    flow.level = level;
    full.take(level * flow.weight, flow.weight);
    other.take(level * flow.weight, flow.weight);
  }

  // Progressive filling for all flows at once: for nodes that hold servers and workers, or several servers.
  void share_all() {
    waiting_.clear();
    for (size_t d = 0; d < rows_.size() / in_.servers; ++d)
      for (int w = 0; w < in_.workers; ++w)
        for (int s = 0; s < in_.servers; ++s)
          if (MaxMinFlow& flow = at(static_cast<int>(d) * in_.servers + s, w); running(flow))
            waiting_.push_back(&flow);
    for (Row& row : rows_) row.plain = false;
    used_.clear();
    for (Nic& nic : nics_) nic.flows_left = 0;
    for (MaxMinFlow* flow : waiting_)
      for (int n : {rows_[flow->row].nic, flow->nic}) {
        Nic& nic = nics_[n];
        if (nic.flows_left++ == 0) {
          used_.push_back({&nic, nullptr});
          nic.left = nic.capacity;
          nic.weight_left = 0;
          nic.share_left = -1;
        }
        nic.weight_left += flow->weight;
      }
    while (!waiting_.empty()) {
      auto [level, full] = next_full();
      bool limited = false;
      for (size_t i = 0; i < waiting_.size() && in_.flow_bytes_per_s < infinity && !limited; ++i)
        limited = in_.flow_bytes_per_s / waiting_[i]->weight <= level;
      size_t kept = 0;
      for (MaxMinFlow* flow : waiting_) {
        Nic &there = nics_[rows_[flow->row].nic], &here = nics_[flow->nic];
        bool stops = limited ? in_.flow_bytes_per_s / flow->weight <= level : &there == full.nic || &here == full.nic;
        if (!stops) {
          waiting_[kept++] = flow;
          continue;
        }
        if (limited)
          give_limit(*flow);
        else
          give(*flow, level, *full.nic, &there == full.nic ? here : there);
      }
      waiting_.resize(kept);
    }
  }

  // Flows go to the clocks that limit them, and clocks to their levels. Rows that were plain and are have but
  // one clock, and only flows that have just started go to it.
  void settle() {
    moving_.clear();
    for (Row& row : rows_) {
      if (row.plain && row.was_plain) continue;
      for (MaxMinFlow* flow : row.flows) {
        if (row.plain) flow->limit = &nics_[row.nic].clock;
        if (flow->clock == flow->limit) continue;
        if (flow->clock != nullptr) move_away(*flow);
        moving_.push_back(flow);
      }
    }
    for (Row& row : rows_) {
      if (row.plain && !row.flows.empty()) {
        if (row.dirty || !row.was_plain) run_clock(nics_[row.nic].clock, nics_[row.nic].share);
      } else {
        for (MaxMinFlow* flow : row.flows) run_clock(*flow->limit, flow->level);
      }
    }
    for (MaxMinFlow* flow : moving_) place(*flow, *flow->limit);
    for (MaxMinFlow* flow : new_flows_)
      if (flow->clock == nullptr) place(*flow, nics_[rows_[flow->row].nic].clock);
    new_flows_.clear();
    for (Row& row : rows_) row.dirty = false;
  }
  void move_away(MaxMinFlow& flow) {
    if (before_move) before_move(flow);
    flow.left = std::max(0.0, (flow.target - flow.clock->at(now_.time())) * flow.weight);
    look_at(*flow.clock);
    flow.clock->remove(flow);
  }
  void run_clock(Clock& clock, double level) {
    if (!clock.empty() && level == clock.level) return;
    clock.tick(now_);
    clock.run_at(level);
    look_at(clock);
  }
  void place(MaxMinFlow& flow, Clock& clock) {
    flow.target = clock.at(now_.time()) + flow.left / flow.weight;
    flow.left = 0;
    clock.add(flow);
    look_at(clock);
  }

  void look_at(Clock& clock) {
    if (!clock.looked_at) looked_at_.push_back(&clock);
    clock.looked_at = true;
  }
  // The first event of all clocks that have flows.
  void find_next() {
    for (Clock* clock : looked_at_) {
      clock->looked_at = false;
      clock->first = clock->next();
      if (!clock->listed && !clock->empty()) clock->listed = true, listed_.push_back(clock);
    }
    looked_at_.clear();
    next_ = Event{};
    size_t kept = 0;
    for (Clock* clock : listed_) {
      if (clock->empty()) {
        clock->listed = false;
        continue;
      }
      listed_[kept++] = clock;
      next_ = std::min(next_, clock->first);
    }
    listed_.resize(kept);
  }

  const Inputs& in_;
  const Now& now_;
  int first_;
  bool by_rows_ = true;  // one server a node, and no workers there
  std::vector<Nic> nics_;
  std::vector<Row> rows_;
  std::vector<MaxMinFlow> flows_;
  std::vector<Clock> own_;
  bool even_;
  double heaviest_ = 0, least_worker_share_ = infinity;
  bool heavier_ = false;  // since rows were last found safe
  bool changed_ = false;
  MaxMinFlow* ended_ = nullptr;
  std::vector<MaxMinFlow*> new_flows_, moving_, waiting_;
  std::vector<Nic*> filling_;
  std::vector<Clock*> looked_at_, listed_;
  std::vector<Used> used_;
  Event next_;
};

}  // namespace planner
