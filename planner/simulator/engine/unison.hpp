// All workers in unison: each computes the same ops one after the other (chorus.hpp), and everything else is joint,
// done by all workers together on the lanes of the first. So do data-parallel and sharded steps whose collectives go
// among all devices.
//
// A joint op begins when the last worker is ready, and nobody sees when any other is. So the end of an op is one event,
// that of the last worker (of several at one instant the highest, as workers go in order), and an op counts what has
// not ended everywhere, not what is missing at each worker. Workers that are ahead have nothing to do with others until
// they wait for a joint op; their next op is worked out when the last worker is there, too.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "chorus.hpp"
#include "event_loop.hpp"
#include "events.hpp"
#include "lanes.hpp"
#include "schedulers.hpp"
#include "sharing.hpp"
#include "steps.hpp"

namespace planner {

template <class Shares>
class Unison : public EventLoop<Unison<Shares>> {
 public:
  // The order of computation, if a run goes this way; else nothing.
  static std::vector<int32_t> order_of(const Inputs& in) {
    if (in.workers < 2 || !in.until_all || !in.cores_abound()) return {};
    // A timeline, a cap or a cut in time shows what only some workers have done.
    if (in.timeline || in.max_events != std::numeric_limits<int64_t>::max() || in.max_time_s < infinity) return {};
    int32_t scope = -1;
    for (int32_t op = 0; op < in.ops; ++op) {
      if (in.gated[op] || in.awaits[op] >= 0) return {};
      if (in.resource[op] == WORKER) continue;
      if (in.scope[op] < 0 || (in.scope[op] != scope && !of_everybody(in, in.scope[op]))) return {};
      scope = in.scope[op];
    }
    return scope < 0 ? std::vector<int32_t>{} : only_order(in);
  }

  Unison(const Inputs& in, const std::vector<int32_t>& order, const Poll& poll)
      : in_(in),
        first_(first_worker(in)),
        poll_(poll),
        links_(first_, now_, false, false),
        steps_(in, 0),
        chorus_(in, steps_),
        order_(order),
        joint_(in.ops, 0),
        joined_s_(in.ops, 0.0),
        traits_(link_traits(first_)),
        lanes_(lanes_of(first_, schedulers_, traits_, links_, false)) {
    for (int32_t op = 0; op < in.ops; ++op)
      for (int32_t dependent : in.dependents(op)) joint_[dependent] += in.scope[op] >= 0;
  }

 private:
  friend class EventLoop<Unison>;

  static bool of_everybody(const Inputs& in, int32_t scope) {
    auto leaders = in.leaders.subspan(size_t(scope) * in.workers, size_t(in.workers));
    return std::ranges::all_of(leaders, [](int32_t leader) { return leader == 0; });
  }
  // The first worker alone, whose lanes do what is joint.
  static Inputs first_worker(const Inputs& in) {
    Inputs first = in;
    first.workers = 1;
    first.near = in.near.first(size_t(in.channels));
    first.far = in.far.first(size_t(in.channels));
    first.local = in.local.first(size_t(in.channels));
    return first;
  }

  void process(uint64_t key, bool) {
    int resource = key_resource(key), worker = key_worker(key);
    if (resource < 0) {
      if (++started_ == in_.workers) begin_steps(worker);
    } else if (resource == WORKER) {
      poll_();
      computing_ = false;
      result_.events += in_.workers;
      end_of_op(order_[next_ - 1], worker);
    } else {
      end_of_chunk(lanes_[size_t(in_.lane_of(resource, key_server(key)))]);
    }
    for (Lane* lane : idle_) {
      lane->marked = false;
      if (lane->chunk.op < 0) start_chunk(*lane);
    }
    idle_.clear();
  }

  // Every worker is in its next step, `last` since now: what is joint in the step goes in the order of its steps.
  void begin_steps(int last) {
    for (int w = 0; w < in_.workers; ++w) steps_.begin(w, chorus_.end_s(w));
    chorus_.begin();
    waiting_.assign(in_.waiting.begin(), in_.waiting.end());
    waiting_for_joint_ = joint_;
    unfinished_ = in_.ops;
    next_ = 0;
    for (int32_t op : steps_.roots(last)) ready(op);
  }

  void ready(int32_t op) {
    if (in_.resource[op] == WORKER) {
      ++next_;
      computing_ = true;
      queue_.push(chorus_.run(op, joined_s_[op]));
      return;
    }
    Lane& lane = lanes_[size_t(in_.lane_of(in_.resource[op], in_.server[op]))];
    lane.enqueue(op);
    mark_idle(lane);
  }
  void mark_idle(Lane& lane) {
    if (lane.chunk.op >= 0 || std::exchange(lane.marked, true)) return;
    idle_.push_back(&lane);
  }

  void start_chunk(Lane& lane) {
    double now = now_.time();
    Chunk& chunk = lane.chunk;
    if (lane.on_link()) {
      if (!lane.scheduler->take(now, chunk)) return;
      chunk.flowing = false;
      if (chunk.ready_s > now)
        queue_.push({chunk.ready_s, lane.key});
      else
        start_flow(lane);
    } else if (!lane.queue.empty()) {
      chunk.op = lane.queue.pop();
      chunk.start_s = now;
      queue_.push({now + steps_.duration(0, chunk.op, false), lane.key});
    }
  }
  void start_flow(Lane& lane) {
    lane.chunk.flowing = true;
    if (lane.local)
      queue_.push({now_.time() + lane.chunk.size / in_.local_bytes_per_s, lane.key});
    else
      links_.of(lane.resource == UPLINK).start(*lane.flow, lane.chunk.size, 1.0);
  }

  void end_of_chunk(Lane& lane) {
    Chunk& chunk = lane.chunk;
    if (lane.on_link()) {
      if (!chunk.flowing) return start_flow(lane);  // only the overhead of the chunk is over
      if (!lane.local) links_.of(lane.resource == UPLINK).finish(*lane.flow);
      lane.used += chunk.size;
      lane.scheduler->done(chunk);
    } else {
      lane.used += now_.time() - chunk.start_s;
    }
    ++result_.events;
    int32_t op = std::exchange(chunk.op, -1);
    mark_idle(lane);
    if (!lane.on_link() || chunk.last) end_of_joint_op(op);
  }
  void end_of_joint_op(int32_t op) {
    joint_s_ = now_.time();
    for (int32_t dependent : in_.dependents(op)) {
      --waiting_for_joint_[dependent];
      joined_s_[dependent] = joint_s_;
    }
    end_of_op(op, in_.workers - 1);  // it ends at all workers, one after the other
  }

  // An op has ended everywhere, at `last` just now.
  void end_of_op(int32_t op, int last) {
    ready_.clear();
    for (int32_t dependent : in_.dependents(op))
      if (--waiting_[dependent] == 0) ready_.push_back(dependent);
    if (ready_.size() > 1) sort_by_order(ready_, steps_.order(last));
    for (int32_t dependent : ready_) ready(dependent);
    if (--unfinished_ == 0) end_steps(last);
  }
  void end_steps(int last) {
    chorus_.wait_until(joint_s_);
    for (int w = 0; w < in_.workers; ++w) steps_.end(w, chorus_.end_s(w));
    step_ended_ = true;
    if (steps_.ended(0) < in_.steps) begin_steps(last);
  }

  std::vector<double> used() {
    double now = now_.time();
    std::vector<double> out(size_t(in_.workers) * in_.lanes(), 0.0);
    for (size_t i = 0; i < lanes_.size(); ++i) {
      const Lane& lane = lanes_[i];
      out[i] = lane.used;
      if (lane.chunk.op < 0) continue;
      if (!lane.on_link())
        out[i] += now - lane.chunk.start_s;
      else if (lane.chunk.flowing && !lane.local)
        out[i] += lane.flow->delivered(now);
    }
    auto next = [this](int i) {
      size_t place = next_ + i - 1;
      return computing_ && place < order_.size() && waiting_for_joint_[order_[place]] == 0 ? order_[place] : -1;
    };
    auto from_s = [this](int32_t op) { return joined_s_[op]; };
    for (int w = 0; w < in_.workers; ++w)
      out[size_t(w) * in_.lanes() + in_.lane_of(WORKER, -1)] = chorus_.busy_s(w, now, next, from_s);
    return out;
  }
  void count_hidden_events() {}
  void forget() {}

  const Inputs& in_;
  Inputs first_;
  const Poll& poll_;
  Now now_;
  Links<Shares> links_;
  Steps steps_;
  Chorus chorus_;
  const std::vector<int32_t>& order_;
  std::vector<int32_t> joint_;    // joint ops that an op waits for
  std::vector<double> joined_s_;  // when the last of them ended
  double joint_s_ = 0;            // when the last joint op of all ended
  std::vector<LinkTraits> traits_;
  std::vector<Scheduler> schedulers_;
  std::vector<Lane> lanes_;       // of the first worker
  Heap<Event> queue_;             // ends that are known for good
  std::vector<Lane*> idle_;       // lanes that may start a chunk at the end of this event
  std::vector<int32_t> waiting_;  // dependencies of each op that have not ended everywhere
  std::vector<int32_t> waiting_for_joint_, ready_;
  int started_ = 0, unfinished_ = 0;
  size_t next_ = 0;         // place in the order of the op after the one that workers are at
  bool computing_ = false;  // some worker is not through with that one
  bool step_ended_ = false;
  Result result_;
};

}  // namespace planner
