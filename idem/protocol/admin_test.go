package protocol_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
)

// What is written by those who look after open questions; the words are those of
// [writeTable], and X is no record. Columns: the owner's reference; a postponement that
// has read none before it, the one before it, and another write; forgetting what was
// read, and another write; keeping what was read for longer, and another write; a resolution
// over an earlier one to completed, failed, released, and of another write.
const questionTable = `
                                            | ref | up up+ upOld | gone goneOld keep keepOld | >C  >F  >R    >Old
absent                                      | -   | -  -  -     | -    -       -    -       | -   -   -     -
pending R                                   | -   | Q  -  -     | -    -       -    -       | C   F   -     -
pending NR                                  | -   | Q  -  -     | -    -       -    -       | C   F   -     -
pending R uncertain                         | -   | Q  -  -     | -    -       -    -       | C   F   -     -
pending NR uncertain                        | -   | Q  -  -     | -    -       -    -       | C   F   -     -
in_progress R live, accepted                | P   | P  -  -     | -    -       -    -       | early early early -
in_progress R lapsed, accepted              | P   | P  -  -     | -    -       -    -       | C   F   R     -
in_progress NR lapsed, accepted             | P   | P  -  -     | -    -       -    -       | C   F   R     -
released R excluded, accepted               | -   | R  -  -     | -    -       -    -       | C   F   -     -
released R uncertain, accepted              | -   | R  -  -     | -    -       -    -       | C   F   -     -
released NR uncertain, accepted             | -   | R  -  -     | -    -       -    -       | C   F   -     -
unknown NR, accepted                        | U   | U  -  -     | -    -       -    -       | C   F   R     -
in_progress R live                          | P   | -  -  -     | -    -       -    -       | early early early -
in_progress NR live                         | P   | P  -  -     | -    -       -    -       | early early early -
in_progress R in the margin                 | P   | -  -  -     | -    -       -    -       | early early early -
in_progress NR in the margin                | P   | P  -  -     | -    -       -    -       | early early early -
in_progress R lapsed                        | P   | -  -  -     | -    -       -    -       | C   F   R     -
in_progress NR lapsed                       | P   | P  -  -     | -    -       -    -       | C   F   R     -
in_progress R lapsed, past its expiry       | P   | -  -  -     | -    -       -    -       | C   F   R     -
in_progress R lapsed, a step                | P   | -  -  -     | -    -       -    -       | C   F   R     -
in_progress NR lapsed, a step               | P   | P  -  -     | -    -       -    -       | C   F   R     -
in_progress R live, an open step            | P   | -  -  -     | -    -       -    -       | early early early -
in_progress R lapsed, an open step          | P   | -  -  -     | -    -       -    -       | C   F   R     -
in_progress R live, watched                 | P   | P  -  -     | -    -       -    -       | early early early -
in_progress R lapsed, watched               | P   | P  -  -     | -    -       -    -       | C   F   R     -
in_progress NR lapsed, unwatched            | P   | -  -  -     | -    -       -    -       | C   F   R     -
in_progress NR lapsed, swept                | P   | -  P  -     | -    -       -    -       | C   F   R     -
in_progress R live, second attempt          | P   | -  -  -     | -    -       -    -       | early early early -
in_progress R lapsed, second attempt        | P   | -  -  -     | -    -       -    -       | C   F   R     -
completed                                   | -   | -  -  -     | X    -       C    -       | -   -   -     -
completed, a step                           | -   | -  -  -     | X    -       C    -       | -   -   -     -
completed, no expiry                        | -   | -  -  -     | X    -       =    -       | -   -   -     -
completed without its result                | -   | -  -  -     | X    -       C    -       | -   -   -     -
completed, in the margin                    | -   | -  -  -     | X    -       -    -       | -   -   -     -
completed, expiring now                     | -   | -  -  -     | X    -       -    -       | -   -   -     -
completed, expired                          | -   | -  -  -     | X    -       -    -       | -   -   -     -
completed, a step, expired                  | -   | -  -  -     | X    -       -    -       | -   -   -     -
completed from outside                      | -   | -  -  -     | X    -       C    -       | C   F   R     -
completed from outside, lease not over      | -   | -  -  -     | X    -       C    -       | C   F   early -
completed from outside, expired             | -   | -  -  -     | X    -       -    -       | C   F   R     -
failed                                      | -   | -  -  -     | X    -       F    -       | -   -   -     -
failed, expired                             | -   | -  -  -     | X    -       -    -       | -   -   -     -
failed from outside                         | -   | -  -  -     | X    -       F    -       | C   F   R     -
released R excluded                         | -   | -  -  -     | X    -       R    -       | -   -   -     -
released NR excluded                        | -   | -  -  -     | X    -       R    -       | -   -   -     -
released R uncertain                        | -   | -  -  -     | X    -       R    -       | -   -   -     -
released NR uncertain                       | -   | -  -  -     | X    -       R    -       | -   -   -     -
released R excluded, a step                 | -   | R  -  -     | -    -       -    -       | -   -   -     -
released R uncertain, a step                | -   | R  -  -     | -    -       -    -       | -   -   -     -
released NR uncertain, a step               | -   | R  -  -     | -    -       -    -       | -   -   -     -
released R excluded, an open step           | -   | R  -  -     | -    -       -    -       | -   -   -     -
released R uncertain, an open step          | -   | R  -  -     | -    -       -    -       | -   -   -     -
released R excluded, expired                | -   | -  -  -     | X    -       -    -       | -   -   -     -
released R uncertain, expired               | -   | -  -  -     | X    -       -    -       | -   -   -     -
released R excluded, a step, expired        | -   | R  -  -     | -    -       -    -       | -   -   -     -
released R uncertain, a step, expired       | -   | R  -  -     | -    -       -    -       | -   -   -     -
released R excluded, two unsettled          | -   | -  -  -     | X    -       R    -       | -   -   -     -
released R uncertain, two unsettled         | -   | -  -  -     | X    -       R    -       | -   -   -     -
released NR from outside                    | -   | -  -  -     | X    -       R    -       | C   F   R     -
released NR from outside, a step            | -   | R  -  -     | -    -       -    -       | C   F   R     -
unknown R before the lease's end            | U   | U  -  -     | -    -       -    -       | C   F   early -
unknown R in the margin                     | U   | U  -  -     | -    -       -    -       | C   F   early -
unknown R after the lease                   | U   | U  -  -     | -    -       -    -       | C   F   R     -
unknown NR after the lease                  | U   | U  -  -     | -    -       -    -       | C   F   R     -
unknown R past an expiry                    | U   | U  -  -     | -    -       -    -       | C   F   R     -
unknown R, an open step                     | U   | U  -  -     | -    -       -    -       | C   F   R     -
unknown NR after the lease, swept           | U   | -  U  -     | -    -       -    -       | C   F   R     -
of no known state                           | -   | -  -  -     | -    -       -    -       | -   -   -     -
`

func TestQuestionTable(t *testing.T) {
	holds(t, questionTable, []protocol.Event{
		{Kind: protocol.EventReference, Owner: "own"},
		{Kind: protocol.EventPostpone, Seen: "seen"},
		{Kind: protocol.EventPostpone, Seen: "seen", Sweep: "sweep"},
		{Kind: protocol.EventPostpone, Owner: "own", Seen: "stale"},
		{Kind: protocol.EventForget, Seen: "seen"},
		{Kind: protocol.EventForget, Owner: "own", Seen: "stale"},
		{Kind: protocol.EventProlong, Seen: "seen", ExpiresAt: instant.Add(time.Hour)},
		{Kind: protocol.EventProlong, Owner: "own", Seen: "stale", ExpiresAt: instant.Add(time.Hour)},
		{Kind: protocol.EventResolve, Seen: "seen", To: protocol.Completed, Again: true, Margin: skew},
		{Kind: protocol.EventResolve, Seen: "seen", To: protocol.Failed, Again: true, Margin: skew},
		{Kind: protocol.EventResolve, Seen: "seen", To: protocol.Released, Again: true, Margin: skew},
		{Kind: protocol.EventResolve, Owner: "own", Seen: "stale", To: protocol.Completed, Again: true, Margin: skew},
	})
}

// Tools show the words of one vocabulary, also one that they do not know.
func TestEachWordAboutAStepHasItsText(t *testing.T) {
	texts := map[string]bool{}
	for _, w := range []protocol.StepVerdict{
		protocol.StepTookEffect, protocol.StepWithoutResult, protocol.StepFailed, protocol.StepNotExecuted, protocol.StepUndone, "postponed",
	} {
		require.Equal(t, w == "postponed", strings.Contains(w.Text(), "is said to be"), w)
		texts[w.Text()] = true
	}
	require.Len(t, texts, 6)
}
