// Max-min fair rates over NICs, for the flows of one direction between workers and servers on nodes of their own;
// the rates are those of sharing.py's progressive filling, bit for bit, but only what changed is worked out.
//
// The flows of a server are a row. Where many workers meet at few servers the servers' NICs fill first, each at
// the level capacity / weight, whatever the others do: such a row is "plain", and a change touches the clock of
// that row alone. What is left is mostly flows that have a server for themselves: then a worker's NIC gives them
// what its plain flows leave. Only where neither holds are rates filled round by round.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "limited.hpp"

namespace planner {

class MaxMinShares : public LimitedFlows {
 public:
  static bool applies(const Inputs& in) {
    if (in.channels > 64 || !in.star()) return false;
    std::vector<int> uses(in.nic_capacity.size() / 2, 0);
    for (int w = 0; w < in.workers; ++w) uses[in.near_of(w, 0)] = 1;
    for (int s = 0; s < in.channels; ++s)
      if (uses[in.far_of(0, s)]++ > 0) return false;
    return true;
  }

  MaxMinShares(const Inputs& in, const Now& now, int first, int last, bool remembers)
      : LimitedFlows(in, now, first, last, remembers),
        running_(in.workers, 0),
        all_(~Servers{0} >> (64 - in.channels)),
        tangled_(in.workers) {
    for (int s = 0; s < in.channels; ++s) rows_.emplace_back(*at(first, 0, s).server_nic, in.workers);
    for (int w = 0; w < in.workers; ++w) port_of(w).workers.push_back(w);
    for (int w = 0; w < in.workers; ++w)
      least_share_ = std::min(least_share_, port_of(w).capacity / double(port_of(w).workers.size() * in.channels));
  }

  void start(Flow& started, double size, double weight) {
    auto& flow = static_cast<MaxMinFlow&>(started);
    if (follows(flow, size, weight)) return;
    leave();
    begin(flow, size, weight);
    rows_[flow.server].workers.add(flow.worker);
    running_[flow.worker] |= bit(flow.server);
    changed(flow);
    if (weight > heaviest_) heaviest_ = weight, heavier_ = true;
  }
  void finish(Flow& flow) { ended_ = static_cast<MaxMinFlow*>(&flow); }
  void commit() {
    leave();
    if (!changed_.empty()) {
      if (changed_.size() > 1 || !share_alone(*changed_[0])) share();
      settle();
      for (MaxMinFlow* flow : changed_) flow->changed = flow->worker_nic->dirty = false;
      changed_.clear();
    }
    find_next();
  }

 private:
  using Servers = uint64_t;  // a set of servers, one bit each
  static Servers bit(int server) { return Servers{1} << server; }
  template <class Do>
  static void for_all(Servers servers, Do action) {
    for (; servers != 0; servers &= servers - 1) action(std::countr_zero(servers));
  }
  // Farther apart than a tie, and as near as rounding takes equal shares.
  static constexpr double clearly = 1 + 1e-8, equally = 1 + 1e-10;

  struct Row {
    Row(Nic& of_server, int count) : nic(&of_server), workers(count) {}
    Nic* nic;
    WorkerSet workers;  // workers whose flows run
  };
  Nic& port_of(int worker) { return *at(first_, worker, 0).worker_nic; }
  Servers running(const Nic& port) const {
    Servers servers = 0;
    for (int w : port.workers) servers |= running_[w];
    return servers;
  }

  void leave() {
    if (ended_ == nullptr) return;
    MaxMinFlow& flow = *ended_;
    ended_ = nullptr;
    end(flow);
    rows_[flow.server].workers.remove(flow.worker);
    running_[flow.worker] &= ~bit(flow.server);
    changed(flow);
  }
  void changed(MaxMinFlow& flow) {
    if (!flow.changed) changed_.push_back(&flow);
    flow.changed = true;
  }

  void share() {
    for (MaxMinFlow* flow : changed_) {
      flow->server_nic->weigh();
      flow->worker_nic->weigh();
      flow->worker_nic->dirty = true;
      dirty_ |= bit(flow->server);
    }
    for_all(heavier_ ? all_ : dirty_, [this](int s) { weigh_row(s); });
    heavier_ = false;
    judge_rows();
    for_all(plain_ & dirty_, [this](int s) { limit_plainly(s); });
    if (uneasy_ != 0) limit_uneasy();
    dirty_ = turned_ = 0;
  }
  // A flow that has, or had, its server for itself, and whose worker has no other flows but in safe rows: no other
  // flow sees a change of this flow.
  bool share_alone(MaxMinFlow& flow) {
    Servers its = bit(flow.server);
    Nic &server = *flow.server_nic, &worker = *flow.worker_nic;
    if (server.flows > int{flow.running} || heavier_ || (running(worker) & ~its & ~safe_) != 0) return false;
    server.weigh();
    worker.weigh();
    weigh_row(flow.server);
    bool plain = flow.running && ((safe_ & its) != 0 || is_plain(flow.server, first_share));
    set(plain_, flow.server, plain);
    set(uneasy_, flow.server, flow.running && !plain);
    if (plain)
      limit(flow, server.clock, server.share);
    else if (flow.running)
      worker.easy = limit_by(worker);
    return true;
  }
  void weigh_row(int s) {
    const Nic& nic = *rows_[s].nic;
    set(used_, s, nic.flows > 0);
    set(safe_, s, nic.share * heaviest_ * clearly < std::min(least_share_, in_.flow_bytes_per_s));
  }
  // A row is plain if its level lies below every flow's own limit and below what its workers' NICs give to flows
  // that are not in plain rows: shares only grow while other NICs fill. A row is safe if that holds whatever flows
  // the workers have.
  void judge_rows() {
    Servers before = plain_;
    plain_ = safe_ & used_;
    Servers others = used_ & ~safe_;
    for_all(others, [this](int s) { set(plain_, s, is_plain(s, first_share)); });
    for_all(others & ~plain_, [this](int s) {
      if (rows_[s].nic->flows > 1) set(plain_, s, is_plain(s, [this](const Nic& port) { return left_share(port); }));
    });
    uneasy_ = used_ & ~plain_;
    turned_ = plain_ ^ before;
    dirty_ |= turned_;
  }
  template <class ShareOf>
  bool is_plain(int s, ShareOf share_of) {
    double level = rows_[s].nic->share * clearly;
    return level * heaviest_ < in_.flow_bytes_per_s &&
           rows_[s].workers.all([&](int w) { return level < share_of(port_of(w)); });
  }
  // What a worker's NIC gives to each of its flows before anything is full.
  static double first_share(const Nic& port) { return port.share; }
  // What a worker's NIC gives to flows outside of plain rows, if nothing else limits these flows.
  double left_share(const Nic& port) {
    double left = port.capacity, weight = port.weight;
    for (int w : port.workers)
      for_all(running_[w] & plain_, [&](int s) {
        const MaxMinFlow& flow = at(first_, w, s);
        left -= flow.server_nic->share * flow.weight;
        weight -= flow.weight;
      });
    return left / weight;
  }
  static void set(Servers& servers, int s, bool in) { servers = (servers & ~bit(s)) | (Servers{in} << s); }

  void limit_plainly(int s) {
    const Row& row = rows_[s];
    if (turned_ & bit(s)) {
      row.workers.all([&](int w) { return limit(at(first_, w, s), row.nic->clock, row.nic->share); });
      return;
    }
    run_clock(row.nic->clock, row.nic->share);
    for (MaxMinFlow* flow : changed_)
      if (flow->server == s && flow->running) limit(*flow, row.nic->clock, row.nic->share);
  }

  // What the plain flows of a worker's NIC leave, the NIC mostly divides among its other flows before the servers'
  // NICs of these flows fill. Where a server's NIC fills first, rates are filled round by round.
  void limit_uneasy() {
    size_t before = limited_.size();
    bool easy = true;
    for_all(uneasy_, [&](int s) {
      rows_[s].workers.all([&](int w) {
        Nic& port = port_of(w);
        if (port.turn == now_.turn) return true;
        port.turn = now_.turn;
        if (port.dirty || (running(port) & dirty_) != 0) port.easy = limit_by(port);
        easy = easy && port.easy;
        return true;
      });
    });
    if (easy) return;
    limited_.resize(before);
    fill();
  }
  bool limit_by(Nic& port) {
    plain_flows_.clear();
    other_flows_.clear();
    for (int w : port.workers) {
      for_all(running_[w] & plain_, [&](int s) { add_as_it_fills(at(first_, w, s)); });
      for_all(running_[w] & uneasy_, [&](int s) { other_flows_.push_back(&at(first_, w, s)); });
    }
    double left = port.capacity, weight_left = port.weight;
    for (const MaxMinFlow* flow : plain_flows_) {
      left -= flow->server_nic->share * flow->weight;
      weight_left -= flow->weight;
    }
    double level = std::max(0.0, left) / weight_left;
    if (other_flows_.size() == 1 && other_flows_[0]->server_nic->flows == 1)
      return limit_alone(*other_flows_[0], level);
    for (const MaxMinFlow* flow : other_flows_)
      if (level > flow->server_nic->share * equally || level * clearly > in_.flow_bytes_per_s / flow->weight)
        return false;
    for (MaxMinFlow* flow : other_flows_) limit(*flow, port.clock, level);
    return true;
  }
  // A flow that has its server for itself, where its worker's NIC would give the flow `level`.
  bool limit_alone(MaxMinFlow& flow, double level) {
    Nic& server = *flow.server_nic;
    if (double own = in_.flow_bytes_per_s / flow.weight; own <= std::min(level, server.share))
      return limit(flow, *flow.own, own);
    return level <= server.share * tie ? limit(flow, flow.worker_nic->clock, level)
                                       : limit(flow, server.clock, server.share);
  }
  void add_as_it_fills(MaxMinFlow& flow) {
    plain_flows_.push_back(&flow);
    for (size_t i = plain_flows_.size() - 1; i > 0; --i) {
      if (flow.server_nic->share * tie >= plain_flows_[i - 1]->server_nic->share) return;
      std::swap(plain_flows_[i], plain_flows_[i - 1]);
    }
  }

  // All flows of the workers that have a flow in a row that is not plain.
  void fill() {
    filled_.clear();
    tangled_.clear();
    for_all(uneasy_, [this](int s) {
      rows_[s].workers.all([this](int w) {
        for (int v : port_of(w).workers) tangled_.add(v);
        return true;
      });
    });
    tangled_.all([this](int w) {
      for_all(running_[w], [&](int s) { filled_.push_back(&at(first_, w, s)); });
      return true;
    });
    filling_.run(filled_);
    for (MaxMinFlow* flow : filled_)
      if (uneasy_ & bit(flow->server)) limit(*flow, *flow->limit, flow->level);
  }

  std::vector<Row> rows_;
  std::vector<Servers> running_;  // by worker: the servers to which the worker has a flow
  Servers all_, used_ = 0, safe_ = 0, plain_ = 0, uneasy_ = 0;  // rows; uneasy are used and not plain
  Servers dirty_ = 0, turned_ = 0;  // rows in which something changed in this event; that became plain or not plain
  double heaviest_ = 0, least_share_ = infinity;  // of ports, with all their flows running, all of weight 1
  bool heavier_ = false;  // a heavier flow has come since rows were last judged
  std::vector<MaxMinFlow*> changed_, plain_flows_, other_flows_, filled_;
  WorkerSet tangled_;  // workers whose flows are filled round by round
};

}  // namespace planner
