//! Keys of job queues: BullMQ, Sidekiq, Celery, Laravel, Resque and RQ.

use super::Shape;

pub(crate) const SHAPES: &[Shape] = &[
    Shape {
        what: "BullMQ: a job that failed in a failover",
        key: "bull:mail:23",
        commands: &[
            r#"HSET bull:mail:23 name welcome data '{"to":"ann@example.org"}' opts '{"attempts":3,"backoff":{"type":"exponential","delay":1000}}'
               timestamp 1763463000123 delay 0 priority 0 attemptsMade 3 ats 3 processedOn 1763463000456 finishedOn 1763463009001 pb worker-1
               failedReason "READONLY You can't write against a read only replica." stacktrace '["Error: READONLY"]'"#,
        ],
    },
    Shape {
        what: "BullMQ: a job that waits",
        key: "bull:mail:24",
        commands: &[
            "HSET bull:mail:24 name digest data {} opts {} timestamp 1763463000124 delay 0 priority 0",
        ],
    },
    Shape {
        what: "BullMQ: a queue's settings",
        key: "bull:mail:meta",
        commands: &["HSET bull:mail:meta opts.maxLenEvents 10000 version bullmq:5.34.2 paused 1"],
    },
    Shape {
        what: "BullMQ: jobs that wait",
        key: "bull:mail:wait",
        commands: &["LPUSH bull:mail:wait 24 25 26 27"],
    },
    Shape {
        what: "BullMQ: jobs for later",
        key: "bull:mail:delayed",
        commands: &["ZADD bull:mail:delayed 7223144448000000 31 7223144489000000 32"],
    },
    Shape {
        what: "BullMQ: finished jobs",
        key: "bull:mail:completed",
        commands: &["ZADD bull:mail:completed 1763463000456 20 1763463000999 21"],
    },
    Shape {
        what: "BullMQ: the last job's number",
        key: "bull:mail:id",
        commands: &["SET bull:mail:id 32"],
    },
    Shape {
        what: "BullMQ: events",
        key: "bull:mail:events",
        commands: &[
            "XADD bull:mail:events MAXLEN ~ 10000 1763463000456-0 event completed jobId 20 returnvalue null prev active",
            "XADD bull:mail:events MAXLEN ~ 10000 1763463009001-0 event failed jobId 23 prev active",
        ],
    },
    Shape {
        what: "BullMQ: a job's own lock",
        key: "bull:mail:22:lock",
        commands: &["SET bull:mail:22:lock 5c1f3b0e-52a1-4d04-9a2e-0b8f6e0f3f11:9 PX 3000000"],
    },
    Shape {
        what: "BullMQ: stalled jobs",
        key: "bull:mail:stalled",
        commands: &["SADD bull:mail:stalled 22"],
    },
    Shape {
        what: "BullMQ: when stalled jobs were last looked for",
        key: "bull:mail:stalled-check",
        commands: &["SET bull:mail:stalled-check 1763463000456 PX 3000000"],
    },
    Shape {
        what: "Sidekiq: retries",
        key: "retry",
        commands: &[
            r#"ZADD retry 1763463060.1234567 '{"class":"HardJob","args":[1],"retry":true,"queue":"default","jid":"b4a577edbccf1d805744efa9","error_message":"boom","retry_count":0}'"#,
        ],
    },
    Shape {
        what: "Sidekiq: scheduled jobs",
        key: "schedule",
        commands: &[
            r#"ZADD schedule 1795000000.5 '{"class":"MailJob","args":["ann"],"queue":"mailers","jid":"0b1c2d3e4f5061728394a5b6"}'"#,
        ],
    },
    Shape {
        what: "Sidekiq: a queue",
        key: "queue:default",
        commands: &[
            r#"LPUSH queue:default '{"class":"HardJob","args":[1],"jid":"b4a577edbccf1d805744efa9","created_at":1763463000.1}'"#,
        ],
    },
    Shape {
        what: "Sidekiq: the queues' names",
        key: "queues",
        commands: &["SADD queues default mailers critical"],
    },
    Shape {
        what: "Sidekiq: a counter",
        key: "stat:processed",
        commands: &["INCRBY stat:processed 481516"],
    },
    Shape {
        what: "Sidekiq: a day's counter",
        key: "stat:failed:2026-11-18",
        commands: &["SET stat:failed:2026-11-18 42 EX 157680000"],
    },
    Shape {
        what: "Sidekiq: a process",
        key: "web-1:2134:8e1a5c0f9c11",
        commands: &[
            r#"HSET web-1:2134:8e1a5c0f9c11 info '{"hostname":"web-1","pid":2134,"concurrency":5}' concurrency 5 busy 1 beat 1763463000.52 rtt_us 153 quiet false rss 123456"#,
            "EXPIRE web-1:2134:8e1a5c0f9c11 6000",
        ],
    },
    Shape {
        what: "Sidekiq: what the threads of a process work on",
        key: "web-1:2134:8e1a5c0f9c11:work",
        commands: &[
            r#"HSET web-1:2134:8e1a5c0f9c11:work ox7d2 '{"queue":"default","run_at":1763463000}' ox7d9 '{"queue":"mailers","run_at":1763463001}'"#,
            "EXPIRE web-1:2134:8e1a5c0f9c11:work 6000",
        ],
    },
    Shape {
        what: "Celery: a task's result",
        key: "celery-task-meta-7f2c0a52-6a52-4a37-b9d2-b5b7dd0e0d11",
        commands: &[
            r#"SET celery-task-meta-7f2c0a52-6a52-4a37-b9d2-b5b7dd0e0d11 '{"status": "SUCCESS", "result": 8, "traceback": null, "children": [], "task_id": "7f2c0a52-6a52-4a37-b9d2-b5b7dd0e0d11"}' EX 86400"#,
        ],
    },
    Shape {
        what: "Celery: a queue",
        key: "celery",
        commands: &[
            r#"LPUSH celery '{"body": "W1sxLCAyXSwge31d", "content-encoding": "utf-8", "headers": {"task": "tasks.add"}, "properties": {"delivery_tag": "a1"}}'"#,
        ],
    },
    Shape {
        what: "kombu: bindings",
        key: "_kombu.binding.celery",
        commands: &[r#"SADD _kombu.binding.celery "celery\x06\x16\x06\x16celery""#],
    },
    Shape {
        what: "kombu: unacknowledged messages",
        key: "unacked",
        commands: &[
            r#"HSET unacked 3f0bdb8e-98a3-4d61-8e69-d2b6ad0f2f10 '[{"body": "W10="}, "", "celery"]'"#,
        ],
    },
    Shape {
        what: "kombu: when each of those was delivered",
        key: "unacked_index",
        commands: &["ZADD unacked_index 1763463000.25 3f0bdb8e-98a3-4d61-8e69-d2b6ad0f2f10"],
    },
    Shape {
        what: "Laravel: a queue",
        key: "laravel_database_queues:default",
        commands: &[
            r#"RPUSH laravel_database_queues:default '{"uuid":"0e3f4a3e-1f2c-4c4a-8b53-9a1c86a0e7d1","displayName":"App\\Jobs\\SendMail","attempts":0}'"#,
        ],
    },
    Shape {
        what: "Laravel: reserved jobs",
        key: "laravel_database_queues:default:reserved",
        commands: &[
            r#"ZADD laravel_database_queues:default:reserved 1763463090 '{"uuid":"0e3f4a3e-1f2c-4c4a-8b53-9a1c86a0e7d2","attempts":1}'"#,
        ],
    },
    Shape {
        what: "Laravel Horizon: a supervisor",
        key: "laravel_horizon:supervisor:web-1-a7Bc:default",
        commands: &[
            r#"HSET laravel_horizon:supervisor:web-1-a7Bc:default name web-1-a7Bc:default master web-1-a7Bc pid 71 status running processes '{"redis:default":3}' options {}"#,
            "EXPIRE laravel_horizon:supervisor:web-1-a7Bc:default 3000",
        ],
    },
    Shape {
        what: "Resque: failed jobs",
        key: "resque:stat:failed",
        commands: &["SET resque:stat:failed 0"],
    },
    Shape {
        what: "RQ: a job",
        key: "rq:job:2b1e1c39-8b8c-4dd7-a9c1-33a2f6d7a001",
        commands: &[
            r#"HSET rq:job:2b1e1c39-8b8c-4dd7-a9c1-33a2f6d7a001 created_at 2026-11-18T13:00:00.000000Z data "x\x9c\x8b\x8e\x05\x00\x01\x15\x00\xb9" status queued timeout 180 origin default"#,
        ],
    },
    Shape {
        what: "RQ: jobs under way",
        key: "rq:wip:default",
        commands: &["ZADD rq:wip:default 1763463240 2b1e1c39-8b8c-4dd7-a9c1-33a2f6d7a001"],
    },
];
