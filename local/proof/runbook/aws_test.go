package runbook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// actAsAWS is the AWS command line as far as the page needs it: `aws sqs`, with the operations and
// parameters of the SDK under the names that the command line gives them. It returns the exit code.
func actAsAWS(args []string, out, errs io.Writer) int {
	if err := callSQS(context.Background(), args, out); err != nil {
		fmt.Fprintln(errs, "aws:", err)
		return 1
	}
	return 0
}

func callSQS(ctx context.Context, args []string, out io.Writer) error {
	if len(args) < 2 || args[0] != "sqs" {
		return fmt.Errorf("only aws sqs is here: %q", args)
	}
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	client := sqs.NewFromConfig(cfg)
	method := reflect.ValueOf(client).MethodByName(goName(args[1]))
	if !method.IsValid() {
		return fmt.Errorf("SQS has no operation %s", args[1])
	}
	in := reflect.New(method.Type().In(1).Elem())
	query, err := fill(in.Elem(), args[2:])
	if err != nil {
		return err
	}
	var result any
	switch task := in.Interface().(type) {
	case *sqs.StartMessageMoveTaskInput: // the local server has none
		result, err = moveAll(ctx, client, task)
	case *sqs.ListMessageMoveTasksInput:
		result = sqs.ListMessageMoveTasksOutput{Results: []types.ListMessageMoveTasksResultEntry{
			{SourceArn: task.SourceArn, Status: aws.String("COMPLETED")},
		}}
	default:
		got := method.Call([]reflect.Value{reflect.ValueOf(ctx), in})
		err, _ = got[1].Interface().(error)
		result = got[0].Interface()
	}
	if err != nil {
		return err
	}
	return printed(out, result, query)
}

// goName is what the SDK calls what the command line calls so.
func goName(name string) string {
	var all strings.Builder
	for word := range strings.SplitSeq(name, "-") {
		all.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return all.String()
}

// fill sets the parameters of an operation, and returns what of its answer is to be printed.
func fill(in reflect.Value, flags []string) (query []string, err error) {
	for ; len(flags) > 1; flags = flags[2:] {
		name, value := strings.TrimPrefix(flags[0], "--"), flags[1]
		switch name {
		case "query":
			query = strings.Split(value, ".")
			continue
		case "output":
			continue
		}
		field := in.FieldByName(goName(name))
		if !field.IsValid() {
			return nil, fmt.Errorf("the operation has no parameter %s", flags[0])
		}
		if field.Kind() == reflect.Slice {
			field.Set(reflect.MakeSlice(field.Type(), 1, 1))
			field = field.Index(0)
		}
		if field.Kind() == reflect.Pointer {
			field.Set(reflect.New(field.Type().Elem()))
			field = field.Elem()
		}
		if field.Kind() == reflect.String {
			field.SetString(value)
			continue
		}
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flags[0], err)
		}
		field.SetInt(n)
	}
	if len(flags) > 0 {
		return nil, fmt.Errorf("%s has no value", flags[0])
	}
	return query, nil
}

// moveAll does at once what SQS does in the background.
func moveAll(ctx context.Context, client *sqs.Client, task *sqs.StartMessageMoveTaskInput) (any, error) {
	from, to := os.Getenv("DEAD"), os.Getenv("QUEUE")
	of, err := client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &from, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn},
	})
	if err != nil {
		return nil, err
	}
	if arn := of.Attributes[string(types.QueueAttributeNameQueueArn)]; arn != aws.ToString(task.SourceArn) || arn == "" {
		return nil, fmt.Errorf("the dead-letter queue is %q, and not %q", arn, aws.ToString(task.SourceArn))
	}
	for {
		got, err := client.ReceiveMessage(ctx,
			&sqs.ReceiveMessageInput{QueueUrl: &from, MaxNumberOfMessages: 10, WaitTimeSeconds: 1})
		if err != nil || len(got.Messages) == 0 {
			return sqs.StartMessageMoveTaskOutput{TaskHandle: aws.String("task-1")}, err
		}
		for _, m := range got.Messages {
			_, sent := client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &to, MessageBody: m.Body})
			done := &sqs.DeleteMessageInput{QueueUrl: &from, ReceiptHandle: m.ReceiptHandle}
			_, deleted := client.DeleteMessage(ctx, done)
			if err := errors.Join(sent, deleted); err != nil {
				return nil, err
			}
		}
	}
}

// printed writes the answer as JSON, or the text within it that the query names.
func printed(out io.Writer, result any, query []string) error {
	text, err := json.MarshalIndent(result, "", "    ")
	if err != nil || query == nil {
		fmt.Fprintln(out, string(text))
		return err
	}
	var at any
	if err := json.Unmarshal(text, &at); err != nil {
		return err
	}
	for _, name := range query {
		members, _ := at.(map[string]any)
		at = members[name]
	}
	if at == nil {
		return fmt.Errorf("the answer has no %s", strings.Join(query, "."))
	}
	_, err = fmt.Fprintln(out, at)
	return err
}
