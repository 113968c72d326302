<?php
// The jobs and acts of jobs.py by Symfony Messenger: `php symfony_jobs.php ACT PORT`. Streams and, for delays, a sorted set.

require_once 'Symfony/Component/Messenger/autoload.php';

use Symfony\Component\Messenger\Bridge\Redis\Transport\Connection;
use Symfony\Component\Messenger\Bridge\Redis\Transport\RedisTransport;
use Symfony\Component\Messenger\Envelope;
use Symfony\Component\Messenger\Stamp\DelayStamp;

[, $act, $port] = $argv;
const DEADLINE_S = 100;

final class Job
{
    public function __construct(public string $name, public array $words)
    {
    }
}

$client = new Redis();
$client->connect('127.0.0.1', (int) $port);
$options = ['stream' => 'messages', 'group' => 'workers', 'consumer' => 'worker', 'delete_after_ack' => true];
$transport = new RedisTransport(Connection::fromDsn("redis://127.0.0.1:$port", $options));

function run(Redis $client, Job $job): void
{
    if ($job->name === 'add') {
        $client->set('result:add', array_sum($job->words));
    } elseif ($job->name === 'late') {
        $client->set('result:late', $job->words[0] ** 2);
    } else {
        $tries = $client->incr('result:tries');
        if ($tries < 2) {
            throw new RuntimeException('the first try fails');
        }
        $client->set('result:flaky', $tries);
    }
}

function wait_for(Redis $client, string $name): string
{
    $deadline = microtime(true) + DEADLINE_S;
    while (($found = $client->get("result:$name")) === false) {
        if (microtime(true) > $deadline) {
            exit("no result of $name\n");
        }
        usleep(50000);
    }

    return $found;
}

if ($act === 'work') {
    while (true) {
        foreach ($transport->get() as $envelope) {
            try {
                run($client, $envelope->getMessage());
                $transport->ack($envelope);
            } catch (RuntimeException) {
                $transport->send(Envelope::wrap($envelope->getMessage(), [new DelayStamp(20)]));
                $transport->reject($envelope);
            }
        }
        usleep(20000);
    }
} elseif ($act === 'first') {
    $transport->send(new Envelope(new Job('add', [2, 3])));
    echo 'add: ', wait_for($client, 'add'), "\n";
    $transport->send(new Envelope(new Job('flaky', [])));
    echo 'tries: ', wait_for($client, 'flaky'), "\n";
} elseif ($act === 'late') {
    $transport->send(new Envelope(new Job('late', [9])));
    echo "late: submitted\n";
} else {
    echo 'late: ', wait_for($client, 'late'), "\n";
}
