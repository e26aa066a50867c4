
# The trees of ZooKeeper's servers, each read from one server alone: alike, and with a
# difference that was planted in the data of one.  See Replicas.

use strict;
use warnings;

use Test::More;

use FaultRun;
use Replicas;
use ZooKeeper;

my $zk = ZooKeeper->new(servers => 3);
my $run = bless { zk => $zk, log => bless {}, 'Log' }, 'FaultRun';
my @void;
sub Log::_record { my ($self, $op, %fields) = @_; push @void, "$op: $fields{what}"; return; }

$zk->create('/zklock/m');
$zk->create('/zklock/m/lock-', ephemeral => 1, sequence => 1) foreach 1 .. 3;
is_deeply([ sort keys %{ $zk->snapshot('/zklock', 2) } ], [ '/zklock', @{ $zk->tree('/zklock') } ], 'a whole tree is read');
$run->_compare_replicas;
is_deeply(\@void, [], 'the servers have the same tree');

# A server that stands still is read when it goes on.
my ($follower) = $zk->followers;
my $leader = $zk->address($zk->leader);
$zk->pause($follower);
$zk->create('/zklock/late', server => $leader);
$zk->resume($follower);
$run->_compare_replicas;
is_deeply(\@void, [], 'a server may catch up');

$zk->stop($follower);
$zk->edit($follower, [ '/zklock/m', 'counter', 17 ]);
$zk->start($follower);
$run->_compare_replicas;
is(scalar @void, 1, 'a server that counts otherwise differs');

# A stat shows twice the counter, less the number of children.
like($void[0], qr{^void: ZooKeeper's servers differ: /zklock/m: .*cversion=31 \S+ data= on $follower$}, 'it is said which, and where');

done_testing();
