package idemlambda

import (
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
)

// A version is no identity of a change: its tags may change twice, and the second
// change must not be swallowed as a repeat of the first.
func TestS3KeyNeedsASequencer(t *testing.T) {
	r := events.S3EventRecord{EventName: "ObjectTagging:Put"}
	r.S3.Bucket.Name, r.S3.Object.Key, r.S3.Object.VersionID = "b", "k", "v1"
	_, _, err := S3ObjectVersion(t.Context(), &r)
	require.ErrorIs(t, err, idem.ErrKeyInvalid)
	require.ErrorContains(t, err, "ObjectTagging:Put has no sequencer")
	r.S3.Object.Sequencer = "0055AED6DCD90281E5"
	_, first, err := S3ObjectVersion(t.Context(), &r)
	require.NoError(t, err)
	r.S3.Object.Sequencer = "0055AED6DCD90281E6"
	_, second, err := S3ObjectVersion(t.Context(), &r)
	require.NoError(t, err)
	require.NotEqual(t, first, second)
}
