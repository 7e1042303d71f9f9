// RUN: tpusim opt -p 'import-calibration-table{file=%S/table}' %s | filecheck %s
//
// The types of tensors get the thresholds of the table.
// FILE table: # op_name threshold min max
// FILE table: x 2.0 -1.5 2.0
// FILE table: y 1.0 -1.0 0.5

func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
  %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
  %y = "top.Sin"(%x) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
  func.return %y : tensor<2x4x6xf32>
}

// CHECK:      module.state = "TOP_CALIBRATED"
// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6x!quant.calibrated<f32<-2.0:2.0>>> loc("x")
// CHECK-NEXT: %y = "top.Sin"(%x) {{.*}} -> tensor<2x4x6x!quant.calibrated<f32<-1.0:1.0>>> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6x!quant.calibrated<f32<-1.0:1.0>>>
