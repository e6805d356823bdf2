package runtime

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// AWS Lambda developer guide, "Handling errors for an SQS event source in
// Lambda" (lambda/latest/dg/services-sqs-errorhandling.html), "Success and
// failure conditions"; the rows marked "ours" are those that it does not speak of.
func TestBatchItemFailures(t *testing.T) {
	batch := []string{"a", "b", "c"}
	for answer, want := range map[string]struct {
		failed []string
		fails  bool
	}{
		`{"batchItemFailures":[]}`:        {},
		`{"batchItemFailures":null}`:      {},
		`{}`:                              {},
		`null`:                            {},
		``:                                {},
		`{"statusCode":200}`:              {},
		" \n{\"batchItemFailures\":[]}\n": {},
		`{"batchItemFailures":[{"itemIdentifier":"b"}]}`:                        {failed: []string{"b"}},
		`{"batchItemFailures":[{"itemIdentifier":"c"},{"itemIdentifier":"a"}]}`: {failed: []string{"c", "a"}},
		`{"batchItemFailures":[{"itemIdentifier":"c"},{"itemIdentifier":"c"}]}`: {failed: []string{"c"}},
		`{"batchItemFailures":[{"itemIdentifier":"b","reason":"x"}],"more":1}`:  {failed: []string{"b"}},
		`{"batchItemFailures":[`: {fails: true},
		`oops`:                   {fails: true},
		`{"batchItemFailures":[{"itemIdentifier":""}]}`:                         {fails: true},
		`{"batchItemFailures":[{"itemIdentifier":null}]}`:                       {fails: true},
		`{"batchItemFailures":[{"itemIdentifer":"b"}]}`:                         {fails: true},
		`{"batchItemFailures":[{"ItemIdentifier":"b"}]}`:                        {fails: true},
		`{"batchItemFailures":[{}]}`:                                            {fails: true},
		`{"batchItemFailures":[{"itemIdentifier":"a"},{"itemIdentifier":"z"}]}`: {fails: true},
		// Ours.
		`{"batchItemFailures":[{"itemIdentifier":7}]}`: {fails: true},
		`{"batchItemFailures":[null]}`:                 {fails: true},
		`{"batchItemFailures":["a"]}`:                  {fails: true},
		`{"batchItemFailures":{"itemIdentifier":"a"}}`: {fails: true},
		`{"batchItemFailures":"a"}`:                    {fails: true},
		`[]`:                                           {fails: true},
		`"done"`:                                       {fails: true},
		`true`:                                         {fails: true},
	} {
		failed, err := BatchItemFailures([]byte(answer), batch)
		if want.fails {
			require.Error(t, err, "%s", answer)
			continue
		}
		require.NoError(t, err, "%s", answer)
		require.Equal(t, want.failed, failed, "%s", answer)
	}
}
