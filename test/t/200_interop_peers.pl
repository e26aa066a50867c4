
# What Curator and kazoo, of several versions, do among themselves, without zklock: the ground for the
# tests with it.  Where they are unsafe, those tests have to know it.

use strict;
use warnings;

use Test::More;

use PostgreSQL::Test::Utils;

use Contender;
use History;
use InteropPeer;
use ZooKeeper;

my $zk = ZooKeeper->new;
my $curator = InteropPeer->curator($zk);
my $kazoo = InteropPeer->kazoo($zk);
my ($c1, $c2, $c3) = map { $curator->actor($_) } qw(c1 c2 c3);
my ($k1, $k2) = map { $kazoo->actor($_) } qw(k1 k2);
$zk->create('/zklock');

sub queue { my ($actor, $kind, $path) = @_; return Contender->foreign($actor, $kind)->queue($zk, $path =~ s{^/zklock}{}r); }
sub queue_of { my ($path) = @_; return Contender::queue_of($zk, $path =~ s{^/zklock}{}r); }

# --- read-write locks, of both, with the names of Curator ---

foreach ([ 'Curator', $c1, $c2 ], [ 'kazoo', $k1, $k2 ], [ 'Curator and kazoo', $c1, $k1 ], [ 'kazoo and Curator', $k2, $c2 ])
{
	my ($who, $one, $two) = @$_;
	my $path = '/zklock/rw_' . $who =~ s/ /_/gr;
	is($one->query("acquire read $path"), 't', "$who: one reads");
	is($two->query("acquire read $path 0"), 't', "$who: the other, too");
	$two->query("release read $path");
	is($two->query("acquire write $path 0"), 'f', "$who: reading keeps a writer away");
	queue($two, 'write', $path);
	is($one->query("release read $path"), 't', "$who: it does not any more");
	is($two->answer, 't', "$who: now the other writes");
	is($one->query("acquire read $path 0"), 'f', "$who: writing keeps a reader away");
	is($one->query("acquire write $path 100"), 'f', "$who: and a writer");
	$two->query("release write $path");
}

# Before kazoo 2.9, a reader looks for the last writer of all, even behind itself, and then the two
# wait for each other (issue 649 of kazoo).
$c1->query('acquire write /zklock/rw');
queue($k1, 'read', '/zklock/rw');
queue($c2, 'write', '/zklock/rw');
$c1->query('release write /zklock/rw');
if ($kazoo->version < v2.9)
{
	Contender->foreign($k1, 'read')->wait_until_watching($zk, (queue_of('/zklock/rw'))[1]);
	ok(!$k1->is_done && !$c2->is_done, 'a reader of kazoo and a writer behind it wait for each other');
	$c2->cancel;
	is($c2->result->{errcode}, 'InterruptedException', 'until one is interrupted');
	is($k1->answer, 't', 'then the reader has it');
	$k1->query('release read /zklock/rw');
}
else
{
	is($k1->answer, 't', 'a reader of kazoo does not look behind itself');
	ok(!$c2->is_done, 'the writer behind it waits');
	$k1->query('release read /zklock/rw');
	is($c2->answer, 't', 'and has it then');
	$c2->query('release write /zklock/rw');
}

# Before Curator 5.5, the znode of a writer that goes on reading queues behind a waiting
# writer, which so gets the lock beside the reader (CURATOR-621).
$c1->query('acquire write /zklock/down');
queue($c2, 'write', '/zklock/down');
is($c1->query('acquire read /zklock/down 0'), 't', 'a writer reads as well');
is($c1->query('release write /zklock/down'), 't', 'and stops writing');
if ($curator->version < v5.5)
{
	is($c2->answer, 't', q{Curator 5.4: a waiting writer does not wait for it});
	is($c1->query('held read /zklock/down'), 't', 'Curator 5.4: while it reads');
	$c1->query('release read /zklock/down');
}
else
{
	ok(!$c2->is_done, 'Curator 5.5: a waiting writer waits for it');
	$c1->query('release read /zklock/down');
	is($c2->answer, 't', 'Curator 5.5: until it stops reading');
}
$c2->query('release write /zklock/down');
$zk->wait_for_children('/zklock/down', 0);

# A reader cannot become a writer.
$c1->query('acquire read /zklock/up');
is($c1->query('acquire write /zklock/up 100'), 'f', 'Curator: no upgrade');
$c1->query('release read /zklock/up');

# --- semaphores ---

is($c1->query('acquire semaphore=3 /zklock/sem - 2'), 't', 'two leases of three');
is($c2->query('acquire semaphore=3 /zklock/sem 100 2'), 'f', 'two more are too many');
is($c2->query('acquire semaphore=3 /zklock/sem 100'), 't', 'one more is not');
is(scalar(split / /, $c3->query('nodes semaphore=3 /zklock/sem')), 3, 'three leases');
$c3->send('acquire semaphore=3 /zklock/sem');
$zk->wait_for_children('/zklock/sem/leases', 4);
ok(!$c3->is_done, 'the waiter has made its lease already');
$c1->query('release semaphore=3 /zklock/sem 1');
is($c3->answer, 't', 'and has it when there is one');
is($c1->errcode('release semaphore=3 /zklock/sem 2'), 'IllegalMonitorStateException', 'releasing more than the session has');
$_->query('release semaphore=3 /zklock/sem') foreach $c1, $c2, $c3;
$zk->wait_for_children('/zklock/sem/leases', 0);

# Curator takes leases one by one, so that two sessions can wait for each other.
my ($one, $two);
foreach (1 .. 100)
{
	$c1->send('acquire semaphore=2 /zklock/sem 300 2');
	$c2->send('acquire semaphore=2 /zklock/sem 300 2');
	($one, $two) = map { $_->answer } $c1, $c2;
	foreach ([ $c1, $one ], [ $c2, $two ])
	{
		$_->[0]->query('release semaphore=2 /zklock/sem 2') if $_->[1] eq 't';
	}
	last if "$one$two" =~ /f/;
}
like("$one$two", qr/f/, 'two that want two of two keep each other from it');

is($c1->query('acquire semmutex /zklock/semmutex'), 't', 'a semaphore as a mutex');
is($c2->query('acquire semaphore=1 /zklock/semmutex 100'), 'f', 'is a semaphore of one');
$c1->query('release semmutex /zklock/semmutex');

# --- revocation ---

my $path = '/zklock/revoke';
is($c1->query("revocable $path report"), 't', 'revocable');
$c1->query("acquire mutex $path");
queue($c2, 'mutex', $path);
$c3->query('revoke ' . (queue_of($path))[0]);
ok($c1->wait_for_event("revoked $path"), 'the holder is asked');
ok(!$c2->is_done, 'and does as it likes');
$c1->query("release mutex $path");
is($c2->answer, 't', 'here it has released');
$c2->query("release mutex $path");

is($c3->query("revocable $path release"), 't', 'revocable');
$c3->query("acquire mutex $path");
queue($c1, 'mutex', $path);
$c2->query('revoke ' . (queue_of($path))[0]);
ok($c3->wait_for_event("revoked $path"), 'asked');
ok($c3->wait_for_event("released $path"), 'and releases by itself');
is($c1->answer, 't', 'so the other has it');
is($c3->query("held mutex $path"), 'f', 'and it has not any more');
$c1->query("release mutex $path");

# --- the load that it can make ---

my $history = History->new;
$history->hammer($curator->actor("c1.r$_"), 'read', '/zklock/load_rw', hold_us => 2000) foreach 1 .. 3;
$history->hammer($curator->actor('c2.w'), 'write', '/zklock/load_rw');
$history->hammer($kazoo->actor('k1.w'), 'write', '/zklock/load_rw');
$history->work_until(sub { $history->each_has(30) && $history->most_at_a_time > 1 }, 'readers and writers');
is_deeply([ $history->problems ], [], 'readers and writers');

$history = History->new;
$history->hammer($curator->actor("c$_.s"), 'semaphore=3', '/zklock/load_sem', hold_us => 2000, quantity => $_) foreach 1 .. 2;
$history->hammer($curator->actor('c3.s'), 'semaphore=3', '/zklock/load_sem', hold_us => 2000);
sub all_leases_were_used { return scalar grep { /leases at a time/ } $history->problems(leases => 2); }
$history->work_until(sub { $history->each_has(20) && all_leases_were_used() }, 'all leases of a semaphore to be in use at one moment');
is_deeply([ $history->problems(leases => 3) ], [], 'a semaphore');
ok(all_leases_were_used(), 'all of its leases were used');

# --- errors are answers ---

is($c1->errcode('release mutex /zklock/nobody'), 'IllegalMonitorStateException', 'Curator: a release of what is not held');
is($k1->query('release mutex /zklock/nobody'), 'f', 'kazoo: a release of what is not held');
is($c1->errcode('acquire what /zklock/x'), 'IllegalArgumentException', 'no such kind');
is($k1->errcode('acquire what /zklock/x'), 'KeyError', 'no such kind');
is($c1->errcode('juggle'), 'IllegalArgumentException', 'no such operation');
is($k1->errcode('juggle'), 'ValueError', 'no such operation');

$curator->kill9;
is($c1->errcode('held mutex /zklock/x'), 'Died', 'a killed peer answers no more');

done_testing();
