// RUN: tpusim opt -p 'inline' %s | filecheck %s
//
// The body of a function takes the place of its call; the private function goes with its last call.

module attributes {module.state = "TOP_F32"} {
  func.func @main(%in: tensor<1x4xf32>) -> tensor<1x4xf32> {
    %x = "top.Input"(%in) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("x")
    %y = "top.Relu"(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("y")
    func.return %y : tensor<1x4xf32>
  }
  func.func private @twice(%n: i32) -> i32 {
    %r = arith.addi %n, %n : i32
    func.return %r : i32
  }
  func.func @public(%n: i32) -> i32 {
    %m = func.call @twice(%n) : (i32) -> i32
    %r = func.call @twice(%m) : (i32) -> i32
    func.return %r : i32
  }
}

// CHECK:      func.func @main(
// CHECK-NEXT: %x = "top.Input"(%in) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("x")
// CHECK-NEXT: %y = "top.Relu"(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x4xf32>
// CHECK:      func.func @public(
// CHECK-NEXT: %r = arith.addi %n, %n : i32
// CHECK-NEXT: %r_1 = arith.addi %r, %r : i32
// CHECK-NEXT: func.return %r_1 : i32
