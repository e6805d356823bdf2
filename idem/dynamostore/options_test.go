package dynamostore

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// The mistakes in what a client, a store and the stores of operators are made of.
func TestMistakesInOptions(t *testing.T) {
	local := must(NewClient(aws.Config{Region: "eu-central-1"}, nil))
	store := func(c Client, table string) error { _, err := New(c, table, nil); return err }
	options := func(o Options) error { _, err := New(local, "t", &o); return err }
	client := func(o ClientOptions) error { _, err := NewClient(aws.Config{Region: "x"}, &o); return err }
	outbox := func(c OutboxClient) error { _, err := NewOutbox(c, "t", nil); return err }
	scanner := func(c ScannerClient, table string) error { _, err := NewScanner(c, table, nil); return err }
	remover := func(c RemoverClient) error { _, err := NewRemover(c, "t", nil); return err }
	keys := func(table string, names ...string) error {
		return options(Options{TableKeys: map[string][]string{table: names}})
	}
	var none *dynamodb.Client
	_, noRegion := NewClient(aws.Config{}, nil)
	for _, c := range []struct {
		err  error
		says string
	}{
		{store(nil, "t"), "NewClient"}, {store(none, "t"), "NewClient"}, {store(local, ""), "name the table"},
		{outbox(nil), "NewClient"}, {outbox(none), "NewClient"}, {remover(nil), "NewClient"}, {remover(none), "NewClient"},
		{scanner(nil, "t"), "NewClient"}, {scanner(local, ""), "name the table"}, {noRegion, "AWS_REGION"},
		{options(Options{AttemptTimeout: -1}), "AttemptTimeout"},
		{options(Options{AttemptTimeout: 1}), "AttemptTimeout is 1ns"},
		{options(Options{Budget: -1}), "Budget"}, {options(Options{Budget: 5}), "Budget is 5ns"},
		{options(Options{MaxResult: -1}), "MaxResult"}, {options(Options{MaxResult: resultLimit + 1}), "MaxResult"},
		{options(Options{Sealer: wrong{more: -1 << 20}}), "Overhead"},
		{options(Options{Sealer: wrong{}, MaxResult: resultLimit}), "with a Sealer"},
		{options(Options{SealedOnly: true}), "Options.Sealer"},
		{keys("t"), "TableKeys"}, {keys("t", "a", "b", "c"), "TableKeys"}, {keys("t", ""), "TableKeys"},
		{keys("", "a"), "TableKeys"},
		{client(ClientOptions{Endpoint: "127.0.0.1:8000"}), "Endpoint"},
		{client(ClientOptions{MaxIdleConns: -1}), "MaxIdleConns"},
		{client(ClientOptions{DialTimeout: -1}), "DialTimeout"},
		{client(ClientOptions{DialTimeout: time.Nanosecond}), "DialTimeout is 1ns"},
	} {
		says(t, c.err, c.says)
	}
}
