package ledger

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/queue/queuetest"
	"github.com/idem-go/idempotency/local/proof/rig"
)

// receipt as the function answers and publishes it.
type receipt struct {
	Transfer string `json:"transfer"`
	Entry    string `json:"entry"`
	Amount   int    `json:"amount"`
}

// audit holds the books, the records and the answers to each other. It returns the
// receipts of what was made, and how many transfers were refused.
func (s *setup) audit(all []transfer, queue []transfer, got *answers) (made map[string]receipt, refused int) {
	t := s.t
	t.Helper()
	asked := map[string]int{}
	for _, tr := range queue {
		asked[tr.ID]++
	}
	entries := s.allEntries()
	made = map[string]receipt{}
	balance := map[string]int{}
	booked := map[string]map[string]bool{}
	for i := range accounts {
		balance[accountName(i)], booked[accountName(i)] = opening, map[string]bool{}
	}
	for _, tr := range all {
		have := got.of[tr.ID]
		require.Len(t, have, asked[tr.ID], "%s: every caller ends with an answer", tr.ID)
		for _, a := range have {
			require.Equal(t, have[0], a, "%s: callers end with different answers", tr.ID)
		}
		rec, result := s.record(tr)
		if have[0].refused {
			refused++
			require.Empty(t, entries[tr.ID], "%s was refused and took effect", tr.ID)
			require.Equal(t, idem.Failed, rec.State, tr.ID)
			require.Equal(t, have[0].text, rec.Failure.Message, tr.ID)
			continue
		}
		var r receipt
		require.NoError(t, json.Unmarshal([]byte(have[0].text), &r))
		require.Equal(t, []string{r.Entry}, entries[tr.ID], "%s took effect otherwise than answered", tr.ID)
		require.Equal(t, tr.ID, r.Transfer)
		require.Equal(t, tr.Amount, r.Amount)
		require.Equal(t, idem.Completed, rec.State, tr.ID)
		require.Equal(t, have[0].text, result, "%s was answered otherwise than recorded", tr.ID)
		made[tr.ID] = r
		balance[tr.From] -= tr.Amount
		balance[tr.To] += tr.Amount
		booked[tr.From][tr.ID], booked[tr.To][tr.ID] = true, true
	}
	total := 0
	for _, acc := range rig.Scan(s.t, s.accounts) {
		id := rig.Text(acc["id"])
		if id == "open" {
			continue
		}
		require.Equal(t, strconv.Itoa(balance[id]), rig.Text(acc["balance"]), id)
		require.GreaterOrEqual(t, balance[id], 0, id)
		total += balance[id]
		in := map[string]bool{}
		for _, v := range acc["journal"].(*types.AttributeValueMemberL).Value {
			require.False(t, in[rig.Text(v)], "%s is booked twice on %s", rig.Text(v), id)
			in[rig.Text(v)] = true
		}
		require.Equal(t, booked[id], in, id)
	}
	require.Equal(t, accounts*opening, total, "the total is conserved")
	landed := map[string]string{}
	for id, list := range entries {
		for _, e := range list {
			landed[e] = id
		}
	}
	for _, e := range got.denied {
		require.NotContains(t, landed, e, "its caller was told that it was not committed")
	}
	s.requireEnded(all)
	s.requireReplays(all, got)
	return made, refused
}

// requireEnded shows that the records are those of the transfers, that each has
// ended, and that none is listed as an open question.
func (s *setup) requireEnded(all []transfer) {
	s.t.Helper()
	ended := map[string]bool{}
	for _, it := range rig.Scan(s.t, s.records) {
		if rig.Text(it[schema.SK]) != schema.RecordSK {
			continue
		}
		state := rig.Text(it[schema.State])
		require.Contains(s.t, []string{string(idem.Completed), string(idem.Failed)}, state, "%s is left open",
			rig.Text(it[schema.PK]))
		require.NotContains(s.t, it, schema.OpenShard)
		require.Contains(s.t, it, schema.ExpiresAt)
		ended[rig.Text(it[schema.PK])] = true
	}
	require.Len(s.t, ended, len(all))
	for _, tr := range all {
		require.True(s.t, ended[id(tr)], tr.ID)
	}
}

// requireReplays asks once more, for one in ten, and gets the same.
func (s *setup) requireReplays(all []transfer, got *answers) {
	s.t.Helper()
	before := s.allEntries()
	again := &answers{of: map[string][]answer{}, told: map[string]int{}}
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	for i := 0; i < len(all); i += 5 {
		require.NoError(s.t, s.ask(ctx, all[i], again))
		require.Equal(s.t, got.of[all[i].ID][0], again.of[all[i].ID][0], "%s is replayed otherwise", all[i].ID)
	}
	require.Equal(s.t, before, s.allEntries())
}

// requireMessages waits until all is dispatched, and shows that each transfer that
// was made has its message, under its one id, and that there is no other. It
// returns how many came more than once.
func (s *setup) requireMessages(made map[string]receipt) (repeats int) {
	t := s.t
	t.Helper()
	require.Eventually(t, func() bool {
		if _, err := s.relay.Call(t.Context(), []byte(`{"sweep": true}`)); err != nil {
			return false
		}
		n := 0
		for _, it := range rig.Scan(s.t, s.records) {
			if strings.HasPrefix(rig.Text(it[schema.SK]), schema.OutboxSK) {
				if rig.Text(it[schema.State]) != schema.OutboxDispatched {
					return false
				}
				n++
			}
		}
		return n == len(made)
	}, 4*time.Minute, 20*time.Millisecond, "every message is dispatched")
	s.poller.Close()

	ids, bodies := map[string]map[string]bool{}, map[string]int{}
	for _, m := range queuetest.Drain(t, s.queue.Client, s.queue.URL) {
		var r receipt
		require.NoError(t, json.Unmarshal([]byte(*m.Body), &r))
		if ids[r.Transfer] == nil {
			ids[r.Transfer] = map[string]bool{}
		}
		ids[r.Transfer][*m.MessageAttributes[outbox.AttributeID].StringValue] = true
		require.Equal(t, made[r.Transfer], r, "its message tells otherwise than its answer")
		if bodies[r.Transfer]++; bodies[r.Transfer] == 2 {
			repeats++
		}
	}
	require.Len(t, ids, len(made))
	for transfer := range made {
		require.Len(t, ids[transfer], 1, "%s: its message has one id, however often it is sent", transfer)
	}
	return repeats
}

func id(tr transfer) string {
	return idem.Operation{Name: "transfer", Repeat: idem.Repeatable}.Key(idem.SingleTenant, tr.ID).ID()
}

func (s *setup) record(tr transfer) (*idem.Record, string) {
	s.t.Helper()
	rec, err := s.store.Get(s.t.Context(), id(tr))
	require.NoError(s.t, err)
	require.NotNil(s.t, rec, "no record of %s", tr.ID)
	if rec.State != idem.Completed {
		return rec, ""
	}
	body, err := s.store.Result(s.t.Context(), rec)
	require.NoError(s.t, err)
	return rec, string(body)
}

// allEntries are the entries of the ledger, by transfer.
func (s *setup) allEntries() map[string][]string {
	s.t.Helper()
	all := map[string][]string{}
	for _, it := range rig.Scan(s.t, s.entries) {
		all[rig.Text(it["transfer"])] = append(all[rig.Text(it["transfer"])], rig.Text(it["entry"]))
	}
	return all
}
