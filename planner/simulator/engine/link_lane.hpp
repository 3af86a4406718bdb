// A worker's link to one server, in one direction, for periods.hpp: when its chunks ended is worked out later.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "clocks.hpp"
#include "events.hpp"
#include "schedulers.hpp"

namespace planner {

struct Upload {
  double ready_s;
  int32_t place, number;  // the end of computation that releases the upload, and the upload's number in the step
  int32_t op;
};

struct LinkLane {
  LinkLane(const Inputs& in_, const LinkTraits& link, Flow& flow_, int direction_, int worker_, int server_)
      : in(&in_),
        scheduler(link),
        flow(&flow_),
        direction(direction_),
        worker(worker_),
        server(server_),
        local(in_.local[size_t(worker_) * in_.channels + server_] != 0),
        key(event_key(direction_ == 0 ? DOWNLINK : UPLINK, worker_, server_)) {}

  const Inputs* in;
  Scheduler scheduler;
  Flow* flow;
  int direction, worker, server;
  bool local;  // both ends on one node: no NIC is crossed
  uint64_t key;
  bool sending = false;
  Chunk chunk;
  double sent_bytes = 0;         // bytes of chunks that ended
  int64_t chunks = 0;            // chunks that ended
  std::vector<Arrival> arrived;  // in this step
  std::vector<Upload> uploads;   // of this step, once computing is known
  size_t added = 0;              // uploads that are already in the lane's queue

  bool waits() const { return added < uploads.size(); }
  void begin_step() {
    for (const LocalChunk& ended : local_chunks_) sent_bytes += ended.bytes;
    chunks += static_cast<int64_t>(local_chunks_.size());
    local_chunks_.clear();
    arrived.clear();
    uploads.clear();
    added = 0;
  }
  void add(int32_t op) {
    scheduler.add(op);
    flow->rest += static_cast<double>(in->bytes[op]);
  }
  bool take(double now) {
    if (!scheduler.take(now, chunk)) return false;
    flow->rest -= chunk.size;
    return true;
  }
  // Of ends at one time, those of computation come before those of chunks.
  void add_uploads(double until_s) {
    for (; waits() && uploads[added].ready_s <= until_s; ++added) add(uploads[added].op);
  }
  // The uploads that one end of computation releases.
  void add_uploads_of(int32_t place) {
    for (; waits() && uploads[added].place == place; ++added) add(uploads[added].op);
  }

  // The beginning and the end of a period in which the lane sends.
  template <class Links>
  void begin(Links& links, const Now& now, double weight) {
    take(now.time());
    sending = true;
    links.of(direction).start(*flow, chunk.size, weight);
  }
  template <class Links>
  void end(Links& links) {
    sending = false;
    links.of(direction).finish(*flow);
  }
  // Ends all chunks whose time has come. False if the lane has no chunk left.
  bool advance(const Now& now, const Poll& poll) {
    const Clock& clock = *flow->clock;
    for (;;) {
      double end_s = 0, since = clock.since;
      uint64_t set_after = clock.set_after;
      bool ended = false;
      for (double clearly_before = flow->target * (1 - 1e-9); clock.later(flow->epoch, 8) < clearly_before;)
        flow->epoch += 8;
      for (; flow->epoch < clock.epoch() && !ended; flow->epoch += !ended) {
        const Past& past = clock.past[static_cast<size_t>(flow->epoch - clock.forgotten)];
        end_s = past.end(flow->target);
        ended = Event(end_s, key) < past.until;
        since = past.since;
        set_after = past.set_after;
      }
      if (!ended) {
        end_s = clock.end(flow->target);
        if (!now.over(Event(end_s, key), clock.changed_in)) return true;
        since = clock.since;
        set_after = clock.set_after;
      }
      sent_bytes += chunk.size;
      if ((++chunks & 0xFFFF) == 0) poll();
      if (!next_chunk(end_s, end_s == since ? std::max(key, set_after + 1) : key)) return false;
      flow->follow(chunk.size);
    }
  }
  // `advance` where more chunks are known. Added uploads put the alarm off: an early alarm does no harm.
  void catch_up(const Now& now, const Poll& poll) {
    if (!advance(now, poll)) throw std::logic_error("a lane fell silent before its alarm");
  }

  // A local lane: sends the whole queue from now on. No other lane shares the node's memory, so all ends are known.
  void send_locally(const Now& now) {
    known_in_ = now.turn;
    send_locally(now.time(), now.instant.greatest() + 1);
  }
  void upload_locally(const Now& now) {
    known_in_ = now.turn;
    while (waits()) {
      double ready_s = uploads[added].ready_s;
      add_uploads_of(uploads[added].place);
      send_locally(ready_s, key);
    }
  }
  Event local_end() const { return {local_chunks_.back().end_s, key}; }
  // Chunks that have ended by now.
  double count_local(const Now& now, int64_t& events) const {
    double bytes = 0;
    for (const LocalChunk& ended : local_chunks_)
      if (now.over(Event(ended.end_s, key), known_in_)) bytes += ended.bytes, ++events;
    return bytes;
  }
  // The ends of this step's transfers.
  std::span<const Arrival> arrived_by(const Now& now) const {
    if (!local) return arrived;
    auto later = std::ranges::find_if(
        arrived, [&](const Arrival& arrival) { return !now.over(Event(arrival.time_s, key), known_in_); });
    return {arrived.begin(), later};
  }

 private:
  struct LocalChunk {
    double end_s, bytes;
  };
  // A chunk has ended, and the next is taken; false if there is none.
  bool next_chunk(double end_s, uint64_t rank) {
    if (chunk.last) arrived.push_back({end_s, rank, chunk.op});
    add_uploads(end_s);
    scheduler.done(chunk);
    return take(end_s);
  }
  // `rank`: the rank of chunks that end at the time of their start.
  void send_locally(double start_s, uint64_t rank) {
    if (!take(start_s)) return;
    double end_s;
    do {
      end_s = start_s + chunk.size / in->local_bytes_per_s;
      rank = std::max(key, end_s == start_s ? rank : 0);
      local_chunks_.push_back({end_s, chunk.size});
      start_s = end_s;
    } while (next_chunk(end_s, rank));
  }

  std::vector<LocalChunk> local_chunks_;  // of this step
  int64_t known_in_ = 0;                  // the turn in which local ends became known
};

inline void catch_up(std::span<LinkLane> lanes, const Now& now, const Poll& poll) {
  for (LinkLane& lane : lanes)
    if (lane.sending) lane.catch_up(now, poll);
}

}  // namespace planner
