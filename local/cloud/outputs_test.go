package cloud

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Outputs have the values that they have on this machine. One that has none is noted.
func TestOutputs(t *testing.T) {
	p, err := read(t, shop+`
Conditions: {Never: !Equals [a, b]}
Outputs:
  URL: {Value: !Sub "https://${Api}.execute-api.${AWS::Region}.${AWS::URLSuffix}/x?a&b"}
  Queue: {Value: !Ref Orders}
  Number: {Value: 5}
  Left: {Condition: Never, Value: x}
  Color: {Value: !GetAtt Role.Color}
  List: {Value: [x]}
`, &ReadOptions{Endpoints: Endpoints{Queues: "http://queues", APIs: map[string]string{"Shop-Api": "http://api"}}})
	require.NoError(t, err)
	require.Equal(t, map[string]map[string]string{"Shop": {
		"URL": "http://api/x?a&b", "Queue": "http://queues/000000000000/Shop-Orders.fifo", "Number": "5",
	}}, p.Outputs)
	require.Contains(t, p.Notes,
		"Shop: the output Color has no value here: Fn::GetAtt: Shop/Role (AWS::IAM::Role) has no attribute Color here")
	require.Contains(t, p.Notes, "Shop: the output List has no value here: [x] is no text")

	path := filepath.Join(t.TempDir(), "outputs.json")
	require.NoError(t, p.WriteOutputs(path))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, `{
  "Shop": {
    "Number": "5",
    "Queue": "http://queues/000000000000/Shop-Orders.fifo",
    "URL": "http://api/x?a&b"
  }
}
`, string(text))
	before := time.Now().Add(-time.Hour).Truncate(time.Second)
	require.NoError(t, os.Chtimes(path, before, before))
	require.NoError(t, p.WriteOutputs(path))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, before, info.ModTime(), "a file with the same content stays")
	require.ErrorContains(t, p.WriteOutputs(t.TempDir()), "cannot write the outputs")

	p, err = read(t, shop, nil)
	require.NoError(t, err)
	require.Empty(t, p.Outputs)
}
