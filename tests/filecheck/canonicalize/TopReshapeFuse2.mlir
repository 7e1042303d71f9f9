// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Reshape that undoes one with several users is removed; each other user gets a Reshape, named from the last use on.

func.func @main(%x: tensor<2x4x6xf32>) -> (tensor<2x24xf32>, tensor<2x4x6xf32>, tensor<2x24xf32>) {
  %0 = "top.Input"(%x) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
  %a = "top.Reshape"(%0) {shape = [2, 24]} : (tensor<2x4x6xf32>) -> tensor<2x24xf32> loc("a")
  %y = "top.Sin"(%a) : (tensor<2x24xf32>) -> tensor<2x24xf32> loc("y")
  %b = "top.Reshape"(%a) {shape = [2, 4, 6]} : (tensor<2x24xf32>) -> tensor<2x4x6xf32> loc("b")
  %z = "top.Cos"(%b) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("z")
  %w = "top.Exp"(%a) : (tensor<2x24xf32>) -> tensor<2x24xf32> loc("w")
  func.return %y, %z, %w : tensor<2x24xf32>, tensor<2x4x6xf32>, tensor<2x24xf32>
}

// CHECK:      %[[X:\w+]] = "top.Input"
// CHECK-NEXT: %[[W:\w+]] = "top.Reshape"(%[[X]]) {{.*}} loc("a_reshape_fuse_0")
// CHECK-NEXT: %[[Y:\w+]] = "top.Reshape"(%[[X]]) {{.*}} loc("a_reshape_fuse_2")
// CHECK-NEXT: "top.Sin"(%[[Y]])
// CHECK-NEXT: "top.Cos"(%[[X]])
// CHECK-NEXT: "top.Exp"(%[[W]])
