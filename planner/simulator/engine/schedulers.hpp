// Schedulers: which chunk a link lane sends next; schedulers.py says how each policy behaves.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <vector>

#include "inputs.hpp"
#include "ranked_queue.hpp"

namespace planner {

struct Chunk {
  int32_t op = -1;  // -1: the lane has none
  bool last = true;
  bool flowing = false;
  double size = 0;  // bytes; 0 for computation
  double start_s = 0, flow_s = 0;
  double ready_s = 0;  // when the chunk's overhead is over
};

// Ops in the order of arrival. A step queues each op of a lane at most a known number of times and leaves the
// queue empty, so an array of that size never overflows.
class Fifo {
 public:
  void reserve(size_t n) { items_.resize(n); }
  bool empty() const { return head_ == tail_; }
  void push(int32_t op) { items_[tail_++] = op; }
  int32_t pop() {
    int32_t op = items_[head_++];
    if (head_ == tail_) head_ = tail_ = 0;
    return op;
  }

 private:
  std::vector<int32_t> items_;
  size_t head_ = 0, tail_ = 0;
};

// What the schedulers of all workers' lanes to one server in one direction have in common.
struct LinkTraits {
  const Inputs* in = nullptr;
  double overhead_s = 0;
  std::vector<std::vector<int32_t>> blocks;  // the members of each block on this link, in order
  size_t transfers = 0;
  std::shared_ptr<const std::vector<int32_t>> rank_places;  // of all links; none without ranks
};

class Scheduler {
 public:
  explicit Scheduler(const LinkTraits& link)
      : kind_(link.in->policy.kind),
        window_(kind_ == Kind::multiplexed ? link.in->policy.chunk_bytes : std::numeric_limits<int64_t>::max()),
        bytes_(link.in->bytes.data()),
        link_(link),
        ranked_(queues() ? 0 : link.transfers),
        gathered_(link.blocks.size(), 0) {
    if (kind_ == Kind::fifo) queue_.reserve(link.transfers);
    if (kind_ == Kind::multiplexed) queue_.reserve(2 * link.transfers);
  }

  void add(int32_t op) {
    if (queues())
      queue_.push(op);
    else
      add_ranked(op);
  }
  bool take(double now, Chunk& chunk) {
    chunk.last = true;
    chunk.ready_s = now + link_.overhead_s;
    return queues() ? take_first(now, chunk) : take_ranked(now, chunk);
  }
  void done(const Chunk& chunk) {
    if (!queues())
      done_ranked(chunk);
    else if (!chunk.last)
      queue_.push(~chunk.op);
  }

 private:
  // First come first served, whole or by windows.
  bool queues() const { return kind_ == Kind::fifo || kind_ == Kind::multiplexed; }
  // The latency of the chunk's op comes on top of the overhead.
  void delay(double now, Chunk& chunk) const {
    const Inputs& in = *link_.in;
    if (!in.latency.empty()) chunk.ready_s = now + (link_.overhead_s + in.latency[chunk.op]);
  }
  // A stream that has sent its window waits as ~op.
  bool take_first(double now, Chunk& chunk) {
    if (queue_.empty()) return false;
    int32_t item = queue_.pop();
    chunk.op = item < 0 ? ~item : item;
    int64_t bytes = item < 0 ? bytes_[chunk.op] - window_ : bytes_[chunk.op];
    chunk.last = item < 0 || bytes <= window_;
    chunk.size = static_cast<double>(chunk.last ? bytes : window_);
    delay(now, chunk);
    return true;
  }

  void add_ranked(int32_t op) {
    const Policy& policy = link_.in->policy;
    switch (kind_) {
      case Kind::fifo:
      case Kind::multiplexed:
        break;
      case Kind::ordered:
      case Kind::sliced:
      case Kind::credit:
        push(op, link_.in->bytes[op]);
        break;
      case Kind::blocks:
        if (int32_t block = policy.block[op]; block < 0) {
          push(op, -1);
        } else if (++gathered_[block] == policy.members[op]) {
          gathered_[block] = 0;
          push(op, block);
        }
        break;
    }
  }

  bool take_ranked(double now, Chunk& chunk) {
    const Policy& policy = link_.in->policy;
    switch (kind_) {
      case Kind::fifo:
      case Kind::multiplexed:
        break;
      case Kind::ordered:
      case Kind::sliced:
        if (ranked_.empty()) return false;
        slice(policy, chunk);
        delay(now, chunk);
        return true;
      case Kind::credit:
        fill_pipe(policy, now);
        if (pipe_.empty()) return false;
        chunk = pipe_.front();
        pipe_.pop_front();
        return true;
      case Kind::blocks:
        return take_member(now, chunk);
    }
    return false;
  }
  void done_ranked(const Chunk& chunk) {
    if (kind_ == Kind::credit) in_flight_ -= chunk.size;
  }
  double size(int32_t op) const { return static_cast<double>(link_.in->bytes[op]); }
  void push(int32_t op, int64_t left) { ranked_.add({op, (*link_.rank_places)[op], left}); }
  // What is left of a transfer keeps its place.
  void slice(const Policy& policy, Chunk& chunk) {
    RankedQueue::Waiting& first = ranked_.first();
    int64_t bytes = policy.chunk_bytes ? std::min(first.left, policy.chunk_bytes) : first.left;
    chunk.op = first.op;
    chunk.size = static_cast<double>(bytes);
    chunk.last = bytes == first.left;
    first.left -= bytes;
    if (chunk.last) ranked_.remove_first();
  }
  void fill_pipe(const Policy& policy, double now) {
    while (!ranked_.empty()) {
      double bytes = static_cast<double>(std::min(ranked_.first().left, policy.chunk_bytes));
      if (in_flight_ + bytes > static_cast<double>(policy.credit_bytes)) return;
      Chunk chunk;
      slice(policy, chunk);
      chunk.ready_s = now + link_.overhead_s;
      delay(now, chunk);
      in_flight_ += chunk.size;
      pipe_.push_back(chunk);
    }
  }
  bool take_member(double now, Chunk& chunk) {
    if (sending_ == nullptr) {
      if (ranked_.empty()) return false;
      RankedQueue::Waiting first = ranked_.first();
      ranked_.remove_first();
      chunk.op = first.op;
      if (first.left < 0) {
        chunk.size = size(first.op);
        delay(now, chunk);
        return true;
      }
      sending_ = &link_.blocks[static_cast<size_t>(first.left)];
      sent_ = 0;
      chunk.op = (*sending_)[0];
      delay(now, chunk);
    } else {
      chunk.ready_s = now;
    }
    chunk.op = (*sending_)[sent_++];
    chunk.size = size(chunk.op);
    if (sent_ == sending_->size()) sending_ = nullptr;
    return true;
  }

  Kind kind_;
  int64_t window_;
  const int64_t* bytes_;
  Fifo queue_;  // fifo, multiplexed
  const LinkTraits& link_;
  RankedQueue ranked_;               // policies with priorities
  std::deque<Chunk> pipe_;           // credit
  double in_flight_ = 0;             // credit
  std::vector<int32_t> gathered_;    // blocks: members that are ready
  const std::vector<int32_t>* sending_ = nullptr;  // blocks: the block on the link
  size_t sent_ = 0;
};

}  // namespace planner
