package later

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/queue/queuetest"
	"github.com/idem-go/idempotency/local/proof/faultnet"
	"github.com/idem-go/idempotency/local/proof/rig"
)

// Every accepted request is found from its 202 on and comes to one end, the same for all who
// asked for it. What is not repeatable runs once, and what was cancelled or given up never.
func TestAcceptedRequestsComeToOneEnd(t *testing.T) {
	count, atOnce, limit := 40, 48, 2*time.Minute
	if rig.Long() {
		count, atOnce, limit = 500, 64, 20*time.Minute
	}
	began := time.Now()
	s := newSetup(t)
	s.work("statements")
	s.work("reports")
	s.sweep()
	all := requests(count)
	queue := rig.Sendings(rand.New(rand.NewPCG(s.seed, 0)), all, 4)
	s.askAll(queue, atOnce, limit)
	s.calm()
	took := time.Since(began)

	// These messages come when all is over.
	for _, name := range []string{"audits", "drafts"} {
		s.work(name)
		s.calm()
		q := s.queues[name]
		require.Eventually(t, func() bool { return queuetest.Held(t, q.Client, q.URL) == 0 },
			time.Minute, 50*time.Millisecond)
	}
	ends := map[string]int{}
	for _, r := range all {
		ends[s.audit(r)]++
	}
	s.requireMessages(all)
	t.Logf("%d requests, %d sendings: ends %v, runs %v, in %.1f s; faults:", count, len(queue), ends,
		s.recorder.Fates(), took.Seconds())
	for name, f := range s.faults {
		t.Logf("  %s %v", name, f.Count())
	}
	for _, end := range []string{"200", "408", string(idemhttp.CodeCancelled), string(idemhttp.CodeFailed),
		string(idemhttp.CodeOutcomeUnknown)} {
		require.NotZero(t, ends[end], end)
	}
	require.NotZero(t, s.recorder.Fates()["die before"]+s.recorder.Fates()["die after"])
	for name, kinds := range map[string][]string{
		"front":   {faultnet.KilledBefore, faultnet.KilledAfter, faultnet.KilledWith},
		"clients": {faultnet.CallLost, faultnet.ReplyLost, faultnet.CutLate},
	} {
		for _, kind := range kinds {
			require.NotZero(t, s.faults[name].Count()[kind], "%s: %s", name, kind)
		}
	}
}

// audit compares the runs of a request, its senders' answers, its status and its record, and
// names its end.
func (s *setup) audit(r *request) (end string) {
	t := s.t
	t.Helper()
	about := func(what string) string { return fmt.Sprintf("request %d, %s: %s", r.n, r.collection, what) }
	op := operations[r.collection]
	rec := s.record(r)
	runs := s.recorder.Of(r.n)
	story := fmt.Sprintf("%d answered %q, runs %+v, record %s attempt %d", r.n, r.answers, runs, rec.State, rec.Attempt)

	status := "" // of a request whose outcome was there before a sender had its 202
	if r.at != "" {
		h, err := s.client(nil).until(t.Context(), http.MethodGet, r.at, r.tenant, nil)
		require.NoError(t, err)
		status = h.answer()
		require.NotEqual(t, http.StatusAccepted, h.StatusCode, "it has not ended: %s", story)
	} else {
		status = r.answers[len(r.answers)-1]
	}
	unknown := fmt.Sprint(http.StatusConflict, " ", idemhttp.CodeOutcomeUnknown)
	for _, a := range r.answers {
		// A parked attempt may still record its outcome.
		require.True(t, a == status || a == unknown && op.Repeat != idem.Repeatable,
			about("its senders learn different ends: "+story))
	}
	ran, pad := 0, sha256.Sum256([]byte(padOf(r.n)))
	for i, run := range runs {
		require.Equal(t, hex.EncodeToString(pad[:]), run.About.Get("pad"), about("it ran with the input of another one"))
		require.Equal(t, []string{r.tenant, op.Name}, []string{run.About.Get("tenant"), run.About.Get("operation")},
			about("it ran as another one"))
		require.True(t, i == 0 || runs[i-1].Attempt < run.Attempt, about("two runs of an attempt: "+story))
		if run.Fate != "not executed" || run.End == "" {
			ran++
		}
	}
	if op.Repeat != idem.Repeatable {
		require.LessOrEqual(t, ran, 1, about("it ran twice: "+story))
	}
	require.True(t, r.cancelled || r.collection != "drafts", about("it waits, and cannot be cancelled"))
	if r.cancelled {
		require.Equal(t, fmt.Sprint(http.StatusConflict, " ", idemhttp.CodeCancelled), status,
			about("it was cancelled: "+story))
	}
	code, rest, _ := strings.Cut(status, " ")
	switch {
	case code == "200":
		var result struct {
			N   int `json:"n"`
			Run int `json:"run"`
		}
		require.NoError(t, json.Unmarshal([]byte(rest), &result))
		require.Equal(t, r.n, result.N)
		require.Positive(t, result.Run)
		require.True(t, runs[result.Run-1].Fate == "ok" && runs[result.Run-1].End == "ok", about("result of no run: "+story))
		require.Equal(t, idem.Completed, rec.State)
		return code
	case code == "408" || rest == string(idemhttp.CodeCancelled):
		require.Empty(t, runs, about("it ended unbegun: "+story))
		require.Equal(t, code == "408", r.collection == "audits" && rest == string(idemhttp.CodeNotStarted),
			about("it was given up: "+story))
		require.True(t, code == "408" || r.cancels, about("its tenant has not cancelled it"))
		require.Equal(t, idem.Failed, rec.State)
		if code == "408" {
			return code
		}
	case rest == string(idemhttp.CodeFailed):
		require.Equal(t, "permanent", runs[len(runs)-1].Fate, about(story))
		require.Equal(t, idem.Failed, rec.State)
	case rest == string(idemhttp.CodeOutcomeUnknown):
		require.NotEqual(t, idem.Repeatable, op.Repeat, about(story))
		require.Equal(t, idem.Unknown, rec.State)
		require.True(t, rec.Open() && !rec.Due.IsZero() && rec.ExpiresAt.IsZero(), about("no sweep will notice it: "+story))
	default:
		require.Fail(t, about("it has no end: "+status+": "+story))
	}
	return rest
}

// record finds the record of a request by its tenant and its operation's name.
func (s *setup) record(r *request) *idem.Record {
	s.t.Helper()
	id := operations[r.collection].Key(r.tenant, r.key).ID()
	rec, err := s.store.Get(s.t.Context(), id)
	require.NoError(s.t, err)
	require.NotNil(s.t, rec, "request %d has no record %s", r.n, id)
	return rec
}

// requireMessages shows that there is a record of each request and of nothing else, and that
// each has one message, and no message is about anything else.
func (s *setup) requireMessages(all []*request) {
	t := s.t
	t.Helper()
	messages, records := map[string]int{}, map[string]bool{}
	for _, it := range rig.Scan(t, s.records) {
		id, sort := rig.Text(it[schema.PK]), rig.Text(it[schema.SK])
		switch {
		case strings.Contains(id, schema.PartPK):
		case sort == schema.RecordSK:
			records[id] = true
		case strings.HasPrefix(sort, schema.OutboxSK):
			messages[id]++
		}
	}
	require.Len(t, records, len(all))
	for _, r := range all {
		id := operations[r.collection].Key(r.tenant, r.key).ID()
		require.True(t, records[id], id)
		require.Equal(t, 1, messages[id], "request %d: messages", r.n)
	}
	require.Len(t, messages, len(all))
}

// twice delivers messages again, now or later, in addition to what the rule does.
func twice(rule faultnet.Rule) faultnet.Rule {
	return func(c *faultnet.Call) faultnet.Fault {
		if f := rule(c); f != nil || c.Operation != "SendMessageBatch" || c.Number%2 == 0 {
			return f
		}
		return func(c *faultnet.Call) (*faultnet.Reply, error) {
			if r, err := c.Pass(); err != nil || r.Status != http.StatusOK {
				return r, err
			}
			var batch map[string]any
			if err := c.Read(&batch); err != nil {
				return nil, err
			}
			entries, _ := batch["Entries"].([]any)
			for _, e := range entries {
				e.(map[string]any)["DelaySeconds"] = c.Number % 5
			}
			var err error
			if c.Body, err = json.Marshal(batch); err != nil {
				return nil, err
			}
			return c.Pass()
		}
	}
}
