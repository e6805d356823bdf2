# Made from the constructs of package infra: see README.md. go test ./template-tests -run TestPlain -update renews it.

variable "relay_zip" {
  description = "Path of the archive of the relay, with its binary bootstrap."
  type        = string
}

variable "relay_environment" {
  default     = {}
  description = "Further variables in the environment of the relay."
  type        = map(string)
}

resource "aws_lambda_function" "relay" {
  architectures    = ["arm64"]
  depends_on       = [aws_iam_role_policy.relay_role_policy]
  filename         = var.relay_zip
  function_name    = "${var.name}-relay"
  handler          = "bootstrap"
  memory_size      = 256
  role             = aws_iam_role.relay_role.arn
  runtime          = "provided.al2023"
  source_code_hash = filebase64sha256(var.relay_zip)
  timeout          = 60

  environment {
    variables = merge(var.relay_environment, {
      GOMEMLIMIT            = "217MiB"
      IDEM_FUNCTION_TIMEOUT = "60"
      IDEM_OUTBOX_GRACE     = "2m0s"
      IDEM_OUTBOX_ROUTES    = "{\"worker\":\"${aws_sqs_queue.worker_queue.url}\"}"
      IDEM_TABLE            = aws_dynamodb_table.records.name
    })
  }

  logging_config {
    application_log_level = "INFO"
    log_format            = "JSON"
    log_group             = aws_cloudwatch_log_group.relay_logs.name
    system_log_level      = "WARN"
  }
}

resource "aws_cloudwatch_metric_alarm" "relay_errors" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "invocations fail. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#errors"
  alarm_name          = "${var.name}-relay-errors"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    FunctionName = aws_lambda_function.relay.function_name
  }
  evaluation_periods = 1
  metric_name        = "Errors"
  namespace          = "AWS/Lambda"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_lambda_function_event_invoke_config" "relay_event_invoke_config" {
  function_name                = aws_lambda_function.relay.function_name
  maximum_event_age_in_seconds = 300
  maximum_retry_attempts       = 0
  qualifier                    = "$LATEST"
}

resource "aws_sqs_queue" "relay_failures" {
  message_retention_seconds = 1209600
  name                      = "${var.name}-relay-failures"
  sqs_managed_sse_enabled   = true

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_cloudwatch_metric_alarm" "relay_failures_depth" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "a function has failed repeatedly on an event, or the relay on a part of the stream: see why. A relay's sweep sends those messages, so that its entry can be deleted; another function must be invoked again. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#failuresdepth"
  alarm_name          = "${var.name}-relay-failures-depth"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    QueueName = aws_sqs_queue.relay_failures.name
  }
  evaluation_periods = 1
  metric_name        = "ApproximateNumberOfMessagesVisible"
  namespace          = "AWS/SQS"
  period             = 300
  statistic          = "Maximum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "relay_failures_old" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "in six days the failure queue was hardly ever empty: what has been there for so long is deleted within eight. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#failuresold"
  alarm_name          = "${var.name}-relay-failures-old"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  datapoints_to_alarm = 144
  dimensions = {
    QueueName = aws_sqs_queue.relay_failures.name
  }
  evaluation_periods = 168
  metric_name        = "ApproximateNumberOfMessagesVisible"
  namespace          = "AWS/SQS"
  period             = 3600
  statistic          = "Maximum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_sqs_queue_policy" "relay_failures_policy" {
  policy = jsonencode({
    Statement = [{
      Action = "sqs:*"
      Condition = {
        Bool = {
          "aws:SecureTransport" = "false"
        }
      }
      Effect = "Deny"
      Principal = {
        AWS = "*"
      }
      Resource = aws_sqs_queue.relay_failures.arn
    }]
    Version = "2012-10-17"
  })
  queue_url = aws_sqs_queue.relay_failures.url
}

resource "aws_cloudwatch_metric_alarm" "relay_iterator_age" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "the relay is 5m0s behind the table's stream. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#iteratorage"
  alarm_name          = "${var.name}-relay-iterator-age"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    FunctionName = aws_lambda_function.relay.function_name
  }
  evaluation_periods = 1
  metric_name        = "IteratorAge"
  namespace          = "AWS/Lambda"
  period             = 300
  statistic          = "Maximum"
  threshold          = 300000
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_log_group" "relay_logs" {
  name              = "${var.name}-relay-logs"
  retention_in_days = var.log_retention
  skip_destroy      = true
}

resource "aws_cloudwatch_metric_alarm" "relay_outbox_dead" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "messages of the outbox became dead letters: their records say that it took effect, and their receivers do not know. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#outboxdead"
  alarm_name          = "${var.name}-relay-outbox-dead"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    service = aws_lambda_function.relay.function_name
  }
  evaluation_periods = 1
  metric_name        = "outbox_dead"
  namespace          = "Idempotency"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "relay_outbox_missed" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "sweeps send messages that the table's stream should have sent within seconds: its mapping is disabled or fails, or a destination was down and its messages are sent now. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#outboxmissed"
  alarm_name          = "${var.name}-relay-outbox-missed"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  datapoints_to_alarm = 2
  dimensions = {
    service = aws_lambda_function.relay.function_name
  }
  evaluation_periods = 3
  metric_name        = "outbox_missed"
  namespace          = "Idempotency"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "relay_outbox_old" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "a message has been waiting in the outbox for 15m0s: its destination is down or refuses it, or the relay has no route to it. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#outboxold"
  alarm_name          = "${var.name}-relay-outbox-old"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    service = aws_lambda_function.relay.function_name
  }
  evaluation_periods = 1
  metric_name        = "outbox_oldest"
  namespace          = "Idempotency"
  period             = 300
  statistic          = "Maximum"
  threshold          = 900
  treat_missing_data = "ignore"
}

resource "aws_cloudwatch_metric_alarm" "relay_outbox_unreadable" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "messages of the outbox are damaged or of a newer version: they are not sent. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#outboxunreadable"
  alarm_name          = "${var.name}-relay-outbox-unreadable"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    service = aws_lambda_function.relay.function_name
  }
  evaluation_periods = 1
  metric_name        = "outbox_unreadable"
  namespace          = "Idempotency"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_iam_role" "relay_role" {
  assume_role_policy = jsonencode({
    Statement = [{
      Action = "sts:AssumeRole"
      Effect = "Allow"
      Principal = {
        Service = "lambda.amazonaws.com"
      }
    }]
    Version = "2012-10-17"
  })
  name = "${var.name}-relay-role"
}

resource "aws_iam_role_policy" "relay_role_policy" {
  name = "${var.name}-relay-role-policy"
  policy = jsonencode({
    Statement = [{
      Action   = ["logs:CreateLogStream", "logs:PutLogEvents"]
      Effect   = "Allow"
      Resource = "${aws_cloudwatch_log_group.relay_logs.arn}:*"
      }, {
      Action   = "sqs:SendMessage"
      Effect   = "Allow"
      Resource = [aws_sqs_queue.relay_failures.arn, aws_sqs_queue.worker_queue.arn]
      }, {
      Action   = ["dynamodb:BatchGetItem", "dynamodb:UpdateItem"]
      Effect   = "Allow"
      Resource = aws_dynamodb_table.records.arn
      }, {
      Action   = "dynamodb:Query"
      Effect   = "Allow"
      Resource = "${aws_dynamodb_table.records.arn}/index/open"
      }, {
      Action   = ["dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator", "dynamodb:ListStreams"]
      Effect   = "Allow"
      Resource = aws_dynamodb_table.records.stream_arn
    }]
    Version = "2012-10-17"
  })
  role = aws_iam_role.relay_role.name
}

resource "aws_cloudwatch_metric_alarm" "relay_stopped" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "no sweep of the relay could look for about half an hour: messages that the stream has missed, or that could not be sent at once, wait; look at the relay's log and its rule. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#stopped"
  alarm_name          = "${var.name}-relay-stopped"
  comparison_operator = "LessThanThreshold"
  datapoints_to_alarm = 2
  dimensions = {
    service = aws_lambda_function.relay.function_name
  }
  evaluation_periods = 2
  metric_name        = "outbox_oldest"
  namespace          = "Idempotency"
  period             = 300
  statistic          = "SampleCount"
  threshold          = 1
  treat_missing_data = "breaching"
}

resource "aws_lambda_event_source_mapping" "relay_stream" {
  batch_size                     = 100
  bisect_batch_on_function_error = true
  depends_on                     = [aws_iam_role_policy.relay_role_policy]
  event_source_arn               = aws_dynamodb_table.records.stream_arn
  function_name                  = aws_lambda_function.relay.function_name
  function_response_types        = ["ReportBatchItemFailures"]
  maximum_retry_attempts         = 10
  starting_position              = "TRIM_HORIZON"

  destination_config {
    on_failure {
      destination_arn = aws_sqs_queue.relay_failures.arn
    }
  }

  filter_criteria {
    filter {
      pattern = "{\"dynamodb\":{\"Keys\":{\"sk\":{\"S\":[{\"prefix\":\"outbox#\"}]}},\"NewImage\":{\"in_state\":{\"S\":[\"new\"]}}}}"
    }
  }
}

resource "aws_cloudwatch_event_rule" "relay_sweep" {
  description         = "Has the relay look for messages that the stream missed."
  name                = "${var.name}-relay-sweep"
  schedule_expression = "rate(5 minutes)"
}

resource "aws_lambda_permission" "relay_sweep_permission" {
  action        = "lambda:InvokeFunction"
  function_name = aws_lambda_function.relay.arn
  principal     = "events.amazonaws.com"
  source_arn    = aws_cloudwatch_event_rule.relay_sweep.arn
}

resource "aws_cloudwatch_event_target" "relay_sweep_target" {
  arn       = aws_lambda_function.relay.arn
  rule      = aws_cloudwatch_event_rule.relay_sweep.name
  target_id = "Relay"
}

resource "aws_cloudwatch_metric_alarm" "relay_throttles" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "invocations are throttled: raise the account's or the function's concurrency, or lower the sources'. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#throttles"
  alarm_name          = "${var.name}-relay-throttles"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    FunctionName = aws_lambda_function.relay.function_name
  }
  evaluation_periods = 1
  metric_name        = "Throttles"
  namespace          = "AWS/Lambda"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "relay_undelivered" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "Lambda could not write to the failure queue, and what the function could not handle is not kept: look at the function's permission to send there, and at the queue's key. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#undelivered"
  alarm_name          = "${var.name}-relay-undelivered"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    FunctionName = aws_lambda_function.relay.function_name
  }
  evaluation_periods = 1
  metric_name        = "DestinationDeliveryFailures"
  namespace          = "AWS/Lambda"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}
