
# How many requests of one role are on their way to ZooKeeper, alone and while another role needs
# ZooKeeper too: see src/worker/request/rolewindow.h.  ZooKeeper is paused, so it answers nothing.

use strict;
use warnings;

use ZklockTest qw(!acquire);

my $zk = ZooKeeper->new;
my $node = ZklockNode->started('n', $zk,
	'zklock.session_timeout' => '60s',
	'zklock.connection_timeout' => '60s',
	'zklock.linger' => 0);
$node->safe_psql('postgres', 'CREATE ROLE one LOGIN; CREATE ROLE other LOGIN');
my $one = $node->backend(extra_params => [ '-U', 'one' ]);
my @ones = map { $node->backend(extra_params => [ '-U', 'one' ]) } 1 .. 20;
my @others = map { $node->backend(extra_params => [ '-U', 'other' ]) } 1 .. 2;
my $number = 0;

# The directories above exist, so a new lock is a create of its directory and one of its znode.
$one->query("SELECT zk_lock_acquire('/dir/first')");
$one->query('SELECT zk_lock_release_all()');

sub acquire { ++$number; return "SELECT zk_lock_acquire('/dir/$number')"; }

sub multilock
{
	++$number;
	return "SELECT zk_multilock_acquire(array_agg('/dir/$number.' || i)) FROM generate_series(1, 60) AS i";
}

# ... and there is a stamp.
foreach (1 .. 2)
{
	$one->query(multilock());
	$one->query('SELECT zk_lock_release_all()');
}
$zk->wait_until(sub { @{ $zk->children('/zklock/.zklock/batches') // [] } == 1 }, 'the stamp to be there');

sub wanted { my ($n) = @_; return $node->wait_until("SELECT count(*) = $n FROM zk_locks"); }

# The creates that the worker sends in one turn, while ZooKeeper is paused: of what role "one" wants, and
# of another session's lock.
sub sent_beside
{
	my ($other, %does) = @_;
	my $worker = $node->worker_pid;
	kill 'STOP', $worker;
	$other->[0]->send(acquire());
	foreach my $i (0 .. $does{sessions} - 1) { $ones[$i]->send($does{sql}->()); }
	wanted(1 + $does{locks});
	my ($creates, $reads) = split /\|/, $node->safe_psql('postgres', 'SELECT creates, reads FROM zk_stat');
	kill 'CONT', $worker;

	# What reads queues sends after all tickets.
	$other->[1]->send(q{SELECT count(*) FROM zk_lock_queue('/dir/first')});
	$node->wait_until("SELECT reads > $reads FROM zk_stat");
	my $sent = $node->safe_psql('postgres', "SELECT creates - $creates FROM zk_stat");
	$zk->resume;
	$_->result foreach @$other, @ones[ 0 .. $does{sessions} - 1 ];
	$_->query('SELECT zk_lock_release_all()') foreach @$other, @ones[ 0 .. $does{sessions} - 1 ];
	wanted(0);
	return $sent;
}

sub sent
{
	my ($other, %does) = @_;
	# The past is forgotten after a second.
	$node->wait_until("SELECT clock_timestamp() > now_then + '1.1 s' FROM (SELECT max(state_change) AS now_then FROM pg_stat_activity WHERE usename IN ('one', 'other')) AS a");
	$zk->pause;
	return sent_beside($other, %does);
}

my %many_paths = (sessions => 1, sql => \&multilock, locks => 60);
my %many_sessions = (sessions => 20, sql => \&acquire, locks => 20);
my $alone = sent([ @ones[ 18, 19 ] ], %many_paths);
my $shared = sent(\@others, %many_paths);
note "60 paths: $alone requests are on their way, or $shared beside another role";
cmp_ok($alone, '>=', 60, '60 paths of one role alone: sixty requests are on their way');
cmp_ok($alone, '<=', 70, '... and not many more');
cmp_ok($shared, '<=', 14, 'beside another role: at most eight in bulk are');

$alone = sent([ $one, $node->backend(extra_params => [ '-U', 'one' ]) ], %many_sessions);
$shared = sent(\@others, %many_sessions);
note "20 sessions: $alone requests are on their way, or $shared beside another role";
cmp_ok($alone, '>=', 40, '20 sessions of one role alone: all that they wait for is on its way');
cmp_ok($shared, '<=', 26, 'beside another role: those of at most eight are');
cmp_ok($shared, '>=', 6, '... and of two, at least');

# --- a directory of very many locks ---

$zk->create_many('/zklock/crowd', 10_001);
my $before = $node->status('requests');
is($one->errcode(q{SELECT count(*) FROM zk_lock_queue('/crowd')}), '54000', 'a queue among very many znodes is not shown');
is($node->status('requests') - $before, 4, '... and not read');
$zk->delete('/zklock/crowd/0');
is($one->query(q{SELECT count(*) FROM zk_lock_queue('/crowd')}), 0, 'among fewer it is');
is($one->query(q{SELECT zk_semaphore_acquire('/crowd', 2) AND zk_semaphore_release('/crowd')}), 't', 'a semaphore on that path can be had');
$node->wait_until('SELECT entries = 0 FROM zk_status');

# A walk asks how many znodes there are before it lists them.
$zk->create_many('/zklock/crowds/crowd', 20_000);
my $superuser = $node->backend;
my $lists = $node->safe_psql('postgres', 'SELECT lists FROM zk_stat');
is($superuser->errcode(q{SELECT count(*) FROM zk_cluster_locks('/crowds/crowd')}), '54000', 'locks below a path, among very many znodes, are not shown');
is($node->safe_psql('postgres', 'SELECT lists FROM zk_stat'), $lists, '... and not listed');
$superuser->quit;

$_->quit foreach $one, @ones, @others;
$node->stop;
done_testing();
