/* The model of protocol.py in C: a hundred times faster, for searches of hundreds of millions of states.
 *
 *     search DURABLE FAULTS WRITES KINDS OFF          go through all states; write how many there are, and a way to a loss
 *     search DURABLE FAULTS WRITES KINDS OFF steps    read states; write how many steps each has, and where they lead
 *
 * KINDS are faults that may happen, OFF are rules that are switched off: words, separated by commas. Input and output are binary.
 *
 * protocol.py is the definition, and says what everything means and why. Functions have its names and its order, and
 * tests/model/test_failover_search.py compares all steps of both. Not here: texts of steps, `Anything`, `watches` and `calm`, and
 * so what nodes hear of Sentinels. The decisions of standing.py are written out in `begin`, `greet` and `lead`.
 *
 * A state is a struct of bytes without gaps. Entries of a log: below 64 a view, from 64 on a write. Views of a tidy state are even
 * numbers, so there is room for one between any two, and a set of views is a word of 64 bits.
 *
 * Of states that were found, the search keeps hashes of 64 bits: of 93 million, two share one with a chance of 1 in 4,000, and then
 * the second is left out. States that wait for their turn are in files.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UP, FROZEN, DEAD };
enum { PRIMARY = -1, UNKNOWN = -1, NOBODY = -1 };
enum { NONE = 0, WRITE = 64, LOG = 16, MOST_FAULTS = 9 };

typedef struct {
    uint8_t life;
    int8_t follows;
    uint8_t length, log[LOG];
    uint8_t linked, fresh, established;
    int8_t facks[3];
    int8_t pending, pending_length; /* to whom: NOBODY: there is none */
    uint8_t promised, own;          /* own: NONE: there is none */
} Node;

typedef struct {
    uint8_t view, epoch;
    uint8_t has_task, chosen, task_epoch, is_promoted, is_planned; /* all 0 without a task */
} Guard;

typedef struct {
    Node nodes[3];
    Guard guards[3];
    uint8_t cuts, acked, writes, wrong;
    uint8_t faults; /* the last one: what is before it is the state's name */
} State;

static struct {
    int durable, faults, writes;
    bool death, cut, freeze, planned, power, order, sentinel;
    bool scripts, views, follow, above, rank, chain, disk, mark;
} model;

#define THREE(n) for (int n = 0; n < 3; n++)

static const uint8_t PAIR[3][3] = {{0, 1, 2}, {1, 0, 4}, {2, 4, 0}};
static const uint8_t WATCH[3] = {8, 16, 32};
static const uint8_t CUTS[12] = {1, 2, 4, 8, 16, 32, 1 | 2, 1 | 4, 2 | 4, 1 | 2 | 8, 1 | 4 | 16, 2 | 4 | 32};

static void fail(const char *why) {
    fprintf(stderr, "%s\n", why);
    exit(2);
}

/* --- Steps are collected here ------------------------------------------------------------------------------------------ */

static State steps[512];
static int step_count;

static State *step(const State *state) {
    if (step_count == 512) fail("too many steps");
    steps[step_count] = *state;
    return &steps[step_count++];
}

/* --- Logs ---------------------------------------------------------------------------------------------------------------- */

static void append(Node *node, uint8_t entry) {
    if (node->length == LOG) fail("too long a log");
    node->log[node->length++] = entry;
}

/* Have the first entries of another's log. */
static void take(Node *node, const Node *other, int length) {
    memset(node->log, 0, LOG);
    memcpy(node->log, other->log, length);
    node->length = length;
}

static bool begins_with(const Node *node, const Node *start) {
    return start->length <= node->length && memcmp(node->log, start->log, start->length) == 0;
}

/* The view that its data belongs to. */
static uint8_t data_of(const Node *node) {
    for (int at = node->length; at-- > 0;)
        if (node->log[at] < WRITE) return node->log[at];
    return NONE;
}

static uint8_t bits(const Node *node, int length) {
    uint8_t found = 0;
    for (int at = 0; at < length; at++)
        if (node->log[at] >= WRITE) found |= 1 << (node->log[at] - WRITE);
    return found;
}

static void forget_pending(Node *node) {
    node->pending = NOBODY;
    node->pending_length = 0;
}

/* --- Acknowledgements ---------------------------------------------------------------------------------------------------- */

static bool is_primary(const Node *node) { return node->follows == PRIMARY; }

/* How much of its log enough replicas have confirmed. */
static int confirmed(const Node *node) {
    int low = node->facks[0], high = low, sum = 0;
    THREE(r) {
        int fack = node->facks[r];
        if (fack < low) low = fack;
        if (fack > high) high = fack;
        sum += fack;
    }
    return model.durable == 1 ? high : sum - low - high;
}

static bool is_complete(const State *state, int n) {
    const Node *node = &state->nodes[n];
    int ready = 0;
    THREE(r) {
        const Node *other = &state->nodes[r];
        bool is_fed = other->life == UP && other->follows == n && other->linked;
        ready += is_fed && other->length == node->length && begins_with(other, node) && !(state->cuts & PAIR[n][r]);
    }
    return ready >= model.durable;
}

static void settle(State *state) {
    uint8_t kept = 0;
    THREE(n) {
        Node *node = &state->nodes[n];
        bool is_begun = node->established || !model.views;
        if (node->life == UP && node->fresh && is_begun && confirmed(node) >= node->length) node->fresh = false;
        kept |= bits(node, node->length);
    }
    THREE(n) {
        const Node *node = &state->nodes[n];
        if (node->life != UP || !is_primary(node) || node->fresh) continue;
        uint8_t new = bits(node, confirmed(node)) & ~state->acked;
        state->acked |= new;
        if (state->acked & ~bits(node, node->length) && (new || is_complete(state, n))) state->wrong = true;
    }
    if (state->acked & ~kept) state->wrong = true;
}

/* --- Roles --------------------------------------------------------------------------------------------------------------- */

static void leave(State *state, int r) {
    Node *node = &state->nodes[r];
    if (!is_primary(node)) {
        Node *primary = &state->nodes[node->follows];
        if (primary->life == UP && !(state->cuts & PAIR[node->follows][r])) primary->facks[r] = UNKNOWN;
    }
    node->linked = false;
}

static void hang_up(State *state, int p) {
    THREE(r) if (state->nodes[r].follows == p) state->nodes[r].linked = false;
}

/* It keeps its data, what it has promised, and a confirmation that is under way. */
static void become(State *state, int n, int life, int follows) {
    leave(state, n);
    hang_up(state, n);
    Node *node = &state->nodes[n];
    node->life = life;
    node->follows = follows;
    node->fresh = node->established = false;
    THREE(r) node->facks[r] = UNKNOWN;
    node->own = NONE;
}

static void obey(State *state, int n, int primary) { become(state, n, UP, primary); }

static void begin_as(const State *before, int n, uint8_t view, bool is_settled) {
    State *state = step(before);
    Node *node = &state->nodes[n];
    hang_up(state, n);
    if (!model.mark) append(node, view);
    node->fresh = true;
    THREE(r) node->facks[r] = UNKNOWN;
    node->promised = node->own = view;
    node->established = false;
    if (is_settled) settle(state);
}

/* Which views somebody knows of, as bits. */
static uint64_t views(const State *state) {
    uint64_t found = 0;
    THREE(n) {
        const Node *node = &state->nodes[n];
        found |= UINT64_C(1) << node->promised | UINT64_C(1) << node->own;
        for (int at = 0; at < node->length; at++)
            if (node->log[at] < WRITE) found |= UINT64_C(1) << node->log[at];
    }
    return found;
}

static void begin(const State *state, int n, uint8_t above, bool is_settled) {
    const Node *node = &state->nodes[n];
    if (!model.views) {
        State *after = step(state);
        if (is_settled) settle(after);
        return;
    }
    uint8_t least = data_of(node);
    if (least < node->promised) least = node->promised;
    if (least < above) least = above;
    least++;
    begin_as(state, n, least, is_settled);
    uint64_t known = views(state);
    for (uint8_t view = least + 1; view < WRITE - 1; view++)
        if (known >> view & 1) begin_as(state, n, view + 1, is_settled);
}

static void promote(const State *before, int n) {
    State state = *before;
    become(&state, n, UP, PRIMARY);
    state.nodes[n].fresh = true;
    begin(&state, n, NONE, true);
}

/* --- What a node does ---------------------------------------------------------------------------------------------------- */

static void come_back(const State *before, int n) {
    State state = *before;
    Node *node = &state.nodes[n];
    node->life = UP;
    node->fresh = is_primary(node);
    if (is_primary(node))
        begin(&state, n, NONE, false);
    else
        step(&state);
}

static void thaw(const State *before, int n) {
    State *state = step(before);
    Node *node = &state->nodes[n];
    THREE(r) {
        Node *other = &state->nodes[r];
        if (r == n || state->cuts & PAIR[n][r] || (other->follows == n && other->linked)) continue;
        node->facks[r] = UNKNOWN;
        if (other->pending == n) forget_pending(other);
    }
    node->life = UP;
    settle(state);
}

static void lead(const State *before, int n) {
    const Node *node = &before->nodes[n];
    if (!node->fresh && before->writes < model.writes) {
        for (int is_script = 0; is_script <= !model.scripts; is_script++) {
            State *state = step(before);
            append(&state->nodes[n], WRITE + state->writes);
            if (is_script) state->acked |= 1 << state->writes;
            state->writes++;
            settle(state);
        }
    }
    if (model.views && !node->established && confirmed(node) != UNKNOWN) {
        State *state = step(before);
        state->nodes[n].established = true;
        if (model.mark) append(&state->nodes[n], node->own);
        settle(state);
    }
}

static void greet(const State *before, int n);

static void follow(const State *before, int n) {
    const Node *node = &before->nodes[n], *primary = &before->nodes[node->follows];
    if (primary->life != UP || before->cuts & PAIR[n][node->follows] || !(is_primary(primary) || primary->linked)) return;
    if (!node->linked) {
        greet(before, n);
        return;
    }
    if (node->length >= primary->length) return;
    State *state = step(before);
    Node *after = &state->nodes[n];
    take(after, primary, node->length + 1);
    forget_pending(after);
    if (!is_primary(primary)) {
        settle(state);
        return;
    }
    if (before->faults) { /* and confirms it late */
        State *late = step(state);
        late->nodes[n].pending = node->follows;
        late->nodes[n].pending_length = after->length;
        settle(late);
    }
    state->nodes[node->follows].facks[n] = after->length;
    settle(state);
}

static void arrive(const State *before, int n) {
    const Node *node = &before->nodes[n];
    if (before->nodes[node->pending].life != UP || before->cuts & PAIR[n][node->pending]) return;
    State *state = step(before);
    int8_t *fack = &state->nodes[node->pending].facks[n];
    if (*fack != UNKNOWN && *fack < node->pending_length) *fack = node->pending_length;
    forget_pending(&state->nodes[n]);
    settle(state);
}

/* --- A replica asks for the stream ----------------------------------------------------------------------------------------- */

/* PSYNC. */
static void go_on_from(const State *before, int n) {
    State *state = step(before);
    Node *node = &state->nodes[n], *primary = &state->nodes[node->follows];
    if (!begins_with(primary, node)) take(node, primary, primary->length);
    node->linked = true;
    forget_pending(node);
    if (is_primary(primary)) primary->facks[n] = node->length;
    settle(state);
}

static void take_over(const State *before, int p, int r) {
    const Node *primary = &before->nodes[p], *replica = &before->nodes[r];
    for (int end = begins_with(replica, primary) ? primary->length + 1 : replica->length; end <= replica->length; end++) {
        State state = *before;
        take(&state.nodes[p], replica, end);
        begin(&state, p, NONE, true);
    }
}

static void greet(const State *before, int n) {
    const Node *node = &before->nodes[n], *primary = &before->nodes[node->follows];
    uint8_t here = data_of(primary), there = model.rank || primary->own == NONE ? data_of(node) : here;
    bool is_behind = there != NONE && (there > here || (there == here && node->length > primary->length));
    if (primary->own == NONE) {
        if (!(model.views && model.chain && is_behind)) go_on_from(before, n);
        return;
    }
    if (node->promised > primary->own && model.above) {
        begin(before, node->follows, node->promised, true);
        return;
    }
    State joined = *before;
    if (node->promised < primary->own) joined.nodes[n].promised = primary->own;
    if (node->promised <= primary->own && !primary->established && is_behind && model.follow) {
        if (node->promised != primary->own) step(&joined);
        take_over(before, node->follows, n);
    } else {
        go_on_from(&joined, n);
    }
}

/* --- Sentinels ------------------------------------------------------------------------------------------------------------ */

static bool reaches(const State *state, int n) { return state->nodes[n].life == UP && !(state->cuts & WATCH[n]); }

static bool takes_for_dead(const State *state, int n) { return !reaches(state, n) || !is_primary(&state->nodes[n]); }

static Guard *tell(const State *state, int g) { return &step(state)->guards[g]; }

static Guard chosen(Guard guard, int n, int epoch, bool is_planned) {
    guard.has_task = true;
    guard.chosen = n;
    guard.task_epoch = epoch;
    guard.is_planned = is_planned;
    return guard;
}

static Guard idle(uint8_t view, uint8_t epoch) { return (Guard){.view = view, .epoch = epoch}; }

static int offset(const Node *node) { return is_primary(node) ? -1 : node->length; }

/* Without views, one with the greatest offset is chosen. */
static bool is_best(const State *state, int n, int view) {
    if (!model.views) THREE(m) {
        if (m != view && reaches(state, m) && offset(&state->nodes[m]) > offset(&state->nodes[n])) return false;
    }
    return true;
}

static void choose(const State *state, int g) {
    const Guard *guard = &state->guards[g];
    int epoch = 0, agreeing = 0;
    bool is_begun = false;
    THREE(i) {
        const Guard *each = &state->guards[i];
        if (epoch < each->epoch) epoch = each->epoch;
        if (epoch < each->task_epoch) epoch = each->task_epoch;
        agreeing += each->view == guard->view && each->epoch == guard->epoch;
        is_begun |= each->has_task && !each->is_planned;
    }
    if (takes_for_dead(state, guard->view)) {
        if (agreeing < 2 || is_begun) return;
        THREE(n) {
            if (n != guard->view && reaches(state, n) && is_best(state, n, guard->view))
                *tell(state, g) = chosen(*guard, n, epoch + 1, false);
        }
    } else if (state->faults && model.planned) {
        THREE(n) {
            if (n == guard->view || !reaches(state, n) || is_primary(&state->nodes[n])) continue;
            State *after = step(state);
            after->faults--;
            after->guards[g] = chosen(*guard, n, epoch + 1, true);
        }
    }
}

static void go_on(const State *before, int g) {
    Guard guard = before->guards[g];
    int n = guard.chosen;
    if (!reaches(before, n) || (guard.is_promoted && !is_primary(&before->nodes[n]))) {
        *tell(before, g) = idle(guard.view, guard.epoch);
    } else if (guard.is_promoted) {
        *tell(before, g) = idle(n, guard.task_epoch);
    } else {
        State state = *before;
        state.guards[g].is_promoted = true;
        if (is_primary(&state.nodes[n]))
            settle(step(&state));
        else
            promote(&state, n);
    }
}

static void put_right(const State *before, int g) {
    int primary = before->guards[g].view;
    if (takes_for_dead(before, primary)) return;
    THREE(n) {
        if (n == primary || !reaches(before, n) || before->nodes[n].follows == primary) continue;
        State *state = step(before);
        obey(state, n, primary);
        settle(state);
    }
}

static const Guard *newest(const State *state) {
    const Guard *best = &state->guards[0];
    THREE(g) if (state->guards[g].epoch > best->epoch) best = &state->guards[g];
    return best;
}

static void watch(const State *state) {
    const Guard *best = newest(state);
    bool is_limbo = false, can_learn = false;
    THREE(i) {
        is_limbo |= state->guards[i].is_promoted;
        can_learn |= reaches(state, i);
    }
    THREE(g) {
        const Guard *guard = &state->guards[g];
        if (guard->has_task)
            go_on(state, g);
        else if (guard->epoch == best->epoch)
            choose(state, g);
        if (guard->epoch == best->epoch) {
            if (!is_limbo) put_right(state, g);
        } else if (can_learn) {
            *tell(state, g) = idle(best->view, best->epoch);
        }
    }
}

/* --- Faults --------------------------------------------------------------------------------------------------------------- */

static void wake(State *state, int p, int r) {
    Node *primary = &state->nodes[p], *node = &state->nodes[r];
    if (primary->life != UP || primary->facks[r] == UNKNOWN || (node->follows == p && node->linked)) return;
    if (node->pending == p) {
        if (node->pending_length > primary->facks[r]) primary->facks[r] = node->pending_length;
        forget_pending(node);
        settle(state);
    }
    primary->facks[r] = UNKNOWN;
}

static void heal(const State *before) {
    for (int bit = 1; bit <= 32; bit *= 2) {
        if (!(before->cuts & bit)) continue;
        State *state = step(before);
        state->cuts &= ~bit;
        THREE(a) for (int b = a + 1; b < 3; b++) {
            if (bit != PAIR[a][b]) continue;
            wake(state, a, b);
            wake(state, b, a);
        }
        settle(state);
    }
}

static void kill(State *state, int n) {
    become(state, n, DEAD, state->nodes[n].follows);
    if (!model.disk) state->nodes[n].promised = NONE;
}

static void order(const State *after, int n) {
    THREE(m) {
        if (m == n || m == after->nodes[n].follows) continue;
        State *state = step(after);
        obey(state, n, m);
        settle(state);
    }
    if (!is_primary(&after->nodes[n])) promote(after, n);
}

static void break_something(const State *before) {
    State after = *before;
    after.faults--;
    THREE(n) {
        if (after.nodes[n].life != UP) continue;
        if (model.death) {
            State *state = step(&after);
            kill(state, n);
            settle(state);
        }
        if (model.freeze) step(&after)->nodes[n].life = FROZEN;
        if (model.order) order(&after, n);
    }
    if (model.power) {
        State *state = step(&after);
        THREE(n) if (state->nodes[n].life != DEAD) kill(state, n);
        settle(state);
    }
    if (model.cut) {
        for (int i = 0; i < 12; i++)
            if (!(CUTS[i] & after.cuts)) step(&after)->cuts |= CUTS[i];
    }
    if (model.sentinel) step(&after);
}

static void find_steps(const State *state) {
    step_count = 0;
    THREE(n) {
        const Node *node = &state->nodes[n];
        if (node->life == DEAD)
            come_back(state, n);
        else if (node->life == FROZEN)
            thaw(state, n);
        else if (is_primary(node))
            lead(state, n);
        else
            follow(state, n);
        if (node->pending != NOBODY && node->life == UP) arrive(state, n);
    }
    watch(state);
    heal(state);
    if (state->faults) break_something(state);
}

/* --- One state for all that differ only in names ----------------------------------------------------------------------------- */

/* Sentinels that lead nothing learn at once who is the primary. */
static void inform(State *state) {
    Guard best = *newest(state);
    bool can_hear = reaches(state, 0) || reaches(state, 1) || reaches(state, 2);
    uint64_t epochs = 0;
    THREE(i) {
        Guard *each = &state->guards[i];
        if (can_hear && !each->has_task && each->epoch < best.epoch) *each = idle(best.view, best.epoch);
        epochs |= UINT64_C(1) << each->epoch;
        if (each->has_task) epochs |= UINT64_C(1) << each->task_epoch;
    }
#define PLACE(mask, at) __builtin_popcountll((mask) & ((UINT64_C(1) << (at)) - 1))
    THREE(i) {
        Guard *each = &state->guards[i];
        each->epoch = PLACE(epochs, each->epoch);
        if (each->has_task) each->task_epoch = PLACE(epochs, each->task_epoch);
    }
}

/* Number views by their places, and leave out what is before the last view that all logs have begun. */
static void tidy(State *state) {
    Node *nodes = state->nodes;
    int shift = 0;
    for (int at = 0; at < LOG && at < nodes[0].length && at < nodes[1].length && at < nodes[2].length; at++) {
        if (nodes[0].log[at] != nodes[1].log[at] || nodes[0].log[at] != nodes[2].log[at]) break;
        if (nodes[0].log[at] < WRITE) shift = at;
    }
    uint8_t kept = 0;
    THREE(n) {
        Node *node = &nodes[n];
        if (shift) {
            memmove(node->log, node->log + shift, LOG - shift);
            memset(node->log + LOG - shift, 0, shift);
            node->length -= shift;
            THREE(r) if (node->facks[r] != UNKNOWN) node->facks[r] = node->facks[r] > shift ? node->facks[r] - shift : 0;
            node->pending_length = node->pending_length > shift ? node->pending_length - shift : 0;
        }
        kept |= bits(node, node->length);
    }
    state->acked &= kept;
    uint64_t known = views(state) | 1;
    if (known >> 60) fail("too many views");
    THREE(n) {
        Node *node = &nodes[n];
        node->promised = 2 * PLACE(known, node->promised);
        node->own = 2 * PLACE(known, node->own);
        for (int at = 0; at < node->length; at++)
            if (node->log[at] < WRITE) node->log[at] = 2 * PLACE(known, node->log[at]);
    }
    THREE(n) if (nodes[n].pending != NOBODY && nodes[nodes[n].pending].facks[n] == UNKNOWN) forget_pending(&nodes[n]);
    inform(state);
}

static uint64_t mix(uint64_t a, uint64_t b) {
    unsigned __int128 product = (unsigned __int128)(a ^ UINT64_C(0x9e3779b97f4a7c15)) * (b ^ UINT64_C(0xd1b54a32d192ed03));
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash(const void *bytes, size_t size) {
    uint64_t found = size, word[2];
    for (size_t at = 0; at < size; at += sizeof word) {
        memset(word, 0, sizeof word);
        memcpy(word, (const char *)bytes + at, size - at < sizeof word ? size - at : sizeof word);
        found = mix(found ^ word[0], word[1] + (found >> 32 | found << 32));
    }
    return found;
}

/* What can be said of a node without naming another. */
static uint64_t key(const State *state, int n) {
    Node node = state->nodes[n];
    int known[3];
    node.follows = is_primary(&node);
    THREE(r) known[r] = node.facks[r] + 1;
    node.facks[0] = known[0] + known[1] + known[2];
    node.facks[1] = known[0] * known[0] + known[1] * known[1] + known[2] * known[2];
    node.facks[2] = (state->cuts & WATCH[n]) != 0;
    node.pending = 0;
    THREE(g) node.pending += (state->guards[g].view == n) * 8 + (state->guards[g].has_task && state->guards[g].chosen == n);
    return hash(&node, sizeof node);
}

static void swap_guards(Guard *a, Guard *b) {
    Guard kept = *a;
    if (memcmp(a, b, sizeof kept) > 0) *a = *b, *b = kept;
}

/* `order` lists the old names, by the new. */
static void reorder(State *state, const State *before, const int order[3]) {
    int to[4];
    to[3] = PRIMARY; /* also NOBODY */
    THREE(new) to[order[new]] = new;
#define TO(n) to[(n) & 3]
    *state = *before;
    THREE(new) {
        Node *node = &state->nodes[new];
        *node = before->nodes[order[new]];
        node->follows = TO(node->follows);
        node->pending = TO(node->pending);
        THREE(r) node->facks[r] = before->nodes[order[new]].facks[order[r]];
    }
    THREE(g) {
        Guard *guard = &state->guards[g];
        guard->view = to[guard->view];
        if (guard->has_task) guard->chosen = to[guard->chosen];
    }
    swap_guards(&state->guards[0], &state->guards[1]);
    swap_guards(&state->guards[1], &state->guards[2]);
    swap_guards(&state->guards[0], &state->guards[1]);
    state->cuts = 0;
    THREE(a) {
        if (before->cuts & WATCH[a]) state->cuts |= WATCH[to[a]];
        for (int b = a + 1; b < 3; b++)
            if (before->cuts & PAIR[a][b]) state->cuts |= PAIR[to[a]][to[b]];
    }
}

static void canonical(State *state) {
    static const int ORDERS[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    tidy(state);
    uint64_t keys[3];
    THREE(n) keys[n] = key(state, n);
    State best, other;
    bool is_first = true;
    for (int i = 0; i < 6; i++) {
        const int *order = ORDERS[i];
        if (keys[order[0]] > keys[order[1]] || keys[order[1]] > keys[order[2]]) continue;
        reorder(&other, state, order);
        if (is_first || memcmp(&other, &best, sizeof best) < 0) best = other;
        is_first = false;
    }
    *state = best;
}

/* --- The search ------------------------------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t name, parent;
} Place;

/* Places of states that were found, in 256 tables, so that only a small part of all is moved when one has to grow. */
static struct {
    Place *places;
    uint64_t size, used;
} tables[256];

/* The place of a state, or an empty one for it. */
static Place *find(uint64_t name) {
    int which = name & 255;
    uint64_t size = tables[which].size;
    Place *places = tables[which].places;
    uint64_t at = (unsigned __int128)name * size >> 64;
    while (places[at].name && places[at].name != name)
        if (++at == size) at = 0;
    return &places[at];
}

static void grow(int which) {
    Place *old = tables[which].places;
    uint64_t size = tables[which].size;
    tables[which].size = size + size / 4 + 1024;
    tables[which].places = calloc(tables[which].size, sizeof *old);
    if (!tables[which].places) fail("out of memory");
    for (uint64_t at = 0; at < size; at++)
        if (old[at].name) *find(old[at].name) = old[at];
    free(old);
}

/* Returns whether it is new. */
static bool add(uint64_t name, uint64_t parent) {
    int which = name & 255;
    if (tables[which].used * 5 >= tables[which].size * 4) grow(which);
    Place *place = find(name);
    if (place->name) return false;
    *place = (Place){name, parent};
    tables[which].used++;
    return true;
}

static uint64_t name_of(const State *state) { return hash(state, offsetof(State, faults)) | 1 << 8; /* never 0 */ }

/* A state that waits for its turn. */
typedef struct {
    State state;
    uint64_t parent;
} Waiting;

static FILE *open_queue(void) {
    FILE *file = tmpfile();
    if (!file) fail("no temporary file");
    return file;
}

static void put(FILE *file, const State *state, uint64_t parent) {
    Waiting waiting = {*state, parent};
    if (!fwrite(&waiting, sizeof waiting, 1, file)) fail("the disk is full");
}

static State first(void) {
    State state = {.faults = model.faults};
    THREE(n) {
        Node *node = &state.nodes[n];
        node->follows = n == 0 ? PRIMARY : 0;
        node->linked = n != 0;
        node->established = n == 0;
        node->pending = NOBODY;
        THREE(r) node->facks[r] = UNKNOWN;
        if (!model.views) continue;
        node->promised = 2;
        append(node, 2);
    }
    if (model.views) state.nodes[0].own = 2;
    THREE(r) if (r) state.nodes[0].facks[r] = state.nodes[0].length;
    return state;
}

/* Write the states on the way to one. */
static State retrace(uint64_t name) {
    State state = first();
    canonical(&state);
    uint64_t parent = find(name)->parent;
    if (parent) {
        State before = retrace(parent);
        find_steps(&before);
        state.faults = 0;
        for (int i = 0; i < step_count; i++) {
            if (steps[i].wrong) continue;
            canonical(&steps[i]);
            if (name_of(&steps[i]) == name && steps[i].faults >= state.faults) state = steps[i];
        }
    }
    fwrite(&state, sizeof state, 1, stdout);
    return state;
}

static void search(void) {
    FILE *queues[MOST_FAULTS + 1]; /* by the faults that are left */
    uint64_t found = 0, loss = 0;
    State state = first();
    for (int faults = 0; faults <= model.faults; faults++) queues[faults] = open_queue();
    canonical(&state);
    put(queues[model.faults], &state, 0);
    for (int faults = model.faults; faults >= 0; faults--) {
        /* Those that a fault has led to may be known; others have been found when they are put into the queue. */
        for (bool may_be_known = true; ftell(queues[faults]); may_be_known = false) {
            FILE *layer = queues[faults];
            Waiting now;
            queues[faults] = open_queue();
            rewind(layer);
            while (!loss && fread(&now, sizeof now, 1, layer)) {
                uint64_t name = name_of(&now.state);
                if (may_be_known && !add(name, now.parent)) continue;
                found++;
                find_steps(&now.state);
                for (int i = 0; i < step_count; i++) {
                    State *after = &steps[i];
                    if (after->wrong) {
                        loss = name;
                        break;
                    }
                    canonical(after);
                    if (after->faults < faults)
                        put(queues[after->faults], after, name);
                    else if (add(name_of(after), name))
                        put(queues[faults], after, name);
                }
            }
            fclose(layer);
        }
        fclose(queues[faults]);
    }
    fwrite(&found, sizeof found, 1, stdout);
    if (loss) retrace(loss);
}

static void answer(void) {
    State state;
    while (fread(&state, sizeof state, 1, stdin)) {
        find_steps(&state);
        for (int i = 0; i < step_count; i++)
            if (!steps[i].wrong) canonical(&steps[i]);
        fwrite(&step_count, sizeof step_count, 1, stdout);
        fwrite(steps, sizeof state, step_count, stdout);
    }
}

static bool has(const char *words, const char *word) {
    size_t length = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += length)
        if ((at == words || at[-1] == ',') && (at[length] == 0 || at[length] == ',')) return true;
    return false;
}

int main(int count, char **words) {
    if (count < 6) fail("search DURABLE FAULTS WRITES KINDS OFF [steps]");
    model.durable = atoi(words[1]);
    model.faults = atoi(words[2]);
    model.writes = atoi(words[3]);
    if (model.durable < 1 || model.durable > 2 || model.faults > MOST_FAULTS || model.writes > 8) fail("too many");
#define KIND(name) model.name = has(words[4], #name)
    KIND(death), KIND(cut), KIND(freeze), KIND(planned), KIND(power), KIND(order), KIND(sentinel);
#define RULE(name) model.name = !has(words[5], #name)
    RULE(scripts), RULE(views), RULE(follow), RULE(above), RULE(rank), RULE(chain), RULE(disk), RULE(mark);
    if (count > 6)
        answer();
    else
        search();
    return 0;
}
